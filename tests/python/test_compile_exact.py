# SPDX-License-Identifier: Apache-2.0
"""Tests that foundry.compile() gives the model's own results, or runs the model.

Each script captures in its first process and loads in its second.
"""
import suite
from test_compile import Script


class Weights(Script):
    def test_close_leaves_weights_that_the_program_replaced(self):
        self.both("""
            model = made()
            fast = begin(model)
            model.weight.data = full(7.0)
            model.bias.data = model.bias.data[0:50]  # a part of its own memory
            fast.close()
            assert values(model.weight) == 7.0, values(model.weight)
            assert values(model.bias) == 0.5 and model.bias.shape == (50,), model.bias.shape
            """)

    def test_close_leaves_weights_that_a_later_compile_moved(self):
        self.both("""
            model = made()
            one, two = begin(model), begin(model, ref="two")
            model.weight.fill_(5.0)
            one.close()
            assert values(model.weight) == 5.0, values(model.weight)
            assert said(lambda: values(two(full(1.0)).sums)) == (6.5, [])
            two.close()
            assert values(model.weight) == 5.0 and values(model.bias) == 0.5
            """)


if __name__ == "__main__":
    suite.main()
