#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of notebooks in Jupyter, on the software driver with a small library in torch's place. A
# model whose class is a cell is captured by the first run and loaded by the second one, although
# each kernel names its cells differently. Objects are shown as tables, and bars are drawn. The
# notebooks that the documentation carries begin; without a GPU they say so.
. "$(dirname "$0")/../lib.sh"

export HOME=$TMP/home XDG_CACHE_HOME=$TMP/xdg FOUNDRY_STORE=$TMP/store JUPYTER_PLATFORM_DIRS=1
export PYTHONPATH=$TMP/site-packages:$ROOT/api/python PYTHONWARNINGS=ignore
export PYDEVD_DISABLE_FILE_VALIDATION=1
unset JUPYTER_PATH JUPYTER_CONFIG_DIR IPYTHONDIR
# Functions of an installed package count by its version.
mkdir -p home site-packages/torch-2.11.0.dist-info
cp "$ROOT/tests/python/stand_in/torch.py" site-packages/
printf 'Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n' \
	>site-packages/torch-2.11.0.dist-info/METADATA

cat >net.py <<'PY'
# %% [markdown]
# x + weight, twice
# %%
import foundry
import torch
torch.cuda.init()
# %%
def capture(capture):
    x, y = torch.full((100,), 7.0), torch.full((100,), 0.0)
    with capture.graph(1):
        y.copy_(x)
    capture.tensor("y", y, use="output")

start = foundry.load_or_capture("seven", capture=capture)
print("start", "captured" if start.captured else "loaded")
# %%
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((100,), 2.0))

    def forward(self, x):
        return x + self.weight
# %%
fast = foundry.compile(Net().eval(), [torch.full((100,), 1.0)], ref="net", progress=True)
fast
# %%
with torch.no_grad():
    print("results", set(fast(torch.full((100,), 3.0)).tolist()))
# %%
foundry.Store()
PY
make_notebook() {
	PYTHONPATH=$ROOT/Documentation/_ext python3 -c '
import json, notebooks, sys
json.dump(notebooks.notebook(open("net.py").read()), open(sys.argv[1], "w"))' "$1"
}
# execute BOOK: runs it as Jupyter does, with the system's Python; the results are in the same file
execute() {
	/usr/bin/python3 - "$1" <<-'PY'
	import sys, nbclient, nbformat
	book = nbformat.read(sys.argv[1], as_version=4)
	try:
	    nbclient.NotebookClient(book, timeout=100, kernel_name="python3").execute()
	finally:
	    nbformat.write(book, sys.argv[1])
	PY
}
# printed BOOK: the text of each result, and the names of its forms
printed() {
	python3 - "$1" <<'PY'
import json, sys
for cell in json.load(open(sys.argv[1]))["cells"]:
    for each in cell.get("outputs", ()):
        forms = each.get("data", {})
        print(*(each.get("text") or forms.get("text/plain", "")),
              "<table" in "".join(forms.get("text/html", "")) and "and a table", sep="")
PY
}
has() { printed "$1" | tr -d '\n' | grep -Eq -- "$2" || { printed "$1"; return 1; }; }

for how in captured loaded; do
	make_notebook "$how.ipynb"
	t "$how: the notebook runs" execute "$how.ipynb"
	t "$how: the model is shown as a table" has "$how.ipynb" \
		"<Compiled Net as 'net': 1 call, $how>and a table"
	t "$how: a bar is drawn" has "$how.ipynb" "100% \[#+\]"
	t "$how: the graph computes" has "$how.ipynb" "results \{5[.]0\}"
	t "$how: load_or_capture() did the same" has "$how.ipynb" "start $how"
	t "$how: the store is shown as a table" has "$how.ipynb" \
		"<Store, the default one>and a table"
done

rm site-packages/torch.py
python3 "$ROOT/Documentation/_ext/notebooks.py" books
for each in books/*.ipynb; do
	t "$each needs a GPU" fails "SystemExit.*no GPU" execute "$each"
done
t_done
