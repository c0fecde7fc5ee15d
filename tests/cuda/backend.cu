// One translation unit, because the three share most kernels, and compiling those is what costs.
#include <backend_layers.hpp>
#include <backend_operations.hpp>
#include <backend_products.hpp>
