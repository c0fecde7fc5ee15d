// One translation unit: these files share most kernels, whose compilation dominates the build time.
#include <backend_gradients.hpp>
#include <backend_layers.hpp>
#include <backend_operations.hpp>
#include <backend_pictures.hpp>
#include <backend_pipeline.hpp>
#include <backend_products.hpp>
#include <backend_residuals.hpp>
#ifndef __CUDACC__ // nvcc takes minutes for a trainer and its files, which are the same on every device
#include <backend_checkpoints.hpp>
#endif
