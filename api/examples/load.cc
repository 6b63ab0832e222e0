// SPDX-License-Identifier: Apache-2.0
// Loads the image that `vecadd capture` sealed and launches its graph, in C++.
//
//     c++ -std=c++17 load.cc $(pkg-config --cflags --libs foundry) -o load && ./load STORE
#include <cstdint>
#include <cstdio>
#include <foundry.h>
#include <memory>
#include <stdexcept>
#include <vector>

static void check(int err)
{
	if (err)
		throw std::runtime_error(fdry_last_error());
}

// A handle of the library, which is released with its owner.
template <auto release> struct Release {
	template <class T> void operator()(T *p) const { release(p); }
};
using Store = std::unique_ptr<fdry_store, Release<fdry_store_close>>;
using Image = std::unique_ptr<fdry_image, Release<fdry_image_unload>>;

static int run(const char *path)
{
	fdry_store *store = nullptr;
	fdry_image *image = nullptr;
	fdry_tensor tensor = {};

	check(fdry_store_open(path, 0, &store));
	Store keep_store(store);
	check(fdry_image_load(store, "vecadd", nullptr, &image));
	Image keep_image(image);
	check(fdry_image_tensor_find(image, "a", &tensor));

	std::vector<float> a(static_cast<size_t>(tensor.shape[0])), out(a.size());
	for (size_t i = 0; i < a.size(); i++)
		a[i] = static_cast<float>(i % 777);
	check(fdry_image_write(image, "a", a.data(), a.size() * sizeof(float), nullptr));
	check(fdry_image_launch(image, 1, nullptr));
	check(fdry_image_read(image, "out", out.data(), out.size() * sizeof(float), nullptr));
	for (size_t i = 0; i < a.size(); i++)
		if (out[i] != a[i] + 0.25f * static_cast<float>(i % 1000))
			throw std::runtime_error("a number is wrong");
	std::printf("%zu numbers are right\n", a.size());
	return 0;
}

int main(int argc, char **argv)
try {
	return run(argc > 1 ? argv[1] : nullptr);
} catch (const std::exception &e) {
	std::fprintf(stderr, "load: %s\n", e.what());
	return 1;
}
