// --count where CUDA is emulated.
#include "blocks_count.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "json_output.hpp"
#include "ledger.hpp"
#include "text_table.hpp"

namespace pulse_bench {

namespace {

using json = nlohmann::ordered_json;

void print_step(const ledger& book, bool markdown) {
    text_table table{{"kind"}};
    for (const std::string_view whose : parties) {
        table.heads.push_back(std::string{whose} + ": kernels");
        table.heads.insert(table.heads.end(), {"GB", "GFLOP", "ms"});
    }
    const auto add = [&](std::string_view name, const auto& amount_of) {
        std::vector<std::string> row{std::string{name}};
        bool is_empty = true;
        for (std::size_t whose = 0; whose != parties.size(); ++whose) {
            const work_amount amount = amount_of(static_cast<party>(whose));
            is_empty = is_empty && amount.kernels == 0 && amount.bytes == 0;
            row.push_back(text_of("%.0f", amount.kernels));
            row.push_back(text_of("%.2f", amount.bytes * 1e-9));
            row.push_back(text_of("%.0f", amount.flops * 1e-9));
            row.push_back(text_of("%.2f", amount.seconds * 1e3));
        }
        if (!is_empty) { table.rows.push_back(std::move(row)); }
    };
    for (std::size_t kind = 0; kind != work_kinds.size(); ++kind) {
        add(work_kinds[kind], [&](party whose) { return book.of(whose, static_cast<work_kind>(kind)); });
    }
    add("all", [&](party whose) { return book.total(whose); });
    table.print(markdown);
}

json json_of(const work_amount& amount) {
    return {{"kernels", amount.kernels}, {"bytes", amount.bytes}, {"flop", amount.flops}, {"ms", amount.seconds * 1e3}};
}

json json_of(const ledger& book) {
    json all = json::object();
    for (std::size_t whose = 0; whose != parties.size(); ++whose) {
        json& mine = all[std::string{parties[whose]}];
        for (std::size_t kind = 0; kind != work_kinds.size(); ++kind) {
            const work_amount& amount = book.of(static_cast<party>(whose), static_cast<work_kind>(kind));
            if (amount.kernels != 0 || amount.bytes != 0) { mine[std::string{work_kinds[kind]}] = json_of(amount); }
        }
        mine["all"] = json_of(book.total(static_cast<party>(whose)));
    }
    return all;
}

/// The products that cuBLASLt is asked for; ms are estimates, as everywhere.
json products_of(const ledger& book) {
    json all = json::array();
    for (const auto& [shape, amount] : book.products()) {
        json one = json_of(amount);
        one.update({{"rows", shape.rows},
                    {"columns", shape.columns},
                    {"depth", shape.depth},
                    {"transpose_a", shape.transpose_a},
                    {"transpose_b", shape.transpose_b},
                    {"type", "bf16"},
                    {"result", shape.float_result ? "fp32" : "bf16"},
                    {"batch", shape.batch},
                    {"adds", shape.adds},
                    {"epilogue", !shape.with_bias    ? "none"
                                 : shape.transpose_b ? "bias gradient"
                                                     : "bias"}});
        all.push_back(std::move(one));
    }
    return all;
}

} // namespace

int count_blocks(const count_options& options, char**) {
    json_output file{options.json_file};
    const auto wanted = [&](const counted_model& model) {
        return options.blocks.wants(std::string{"step "} + model.name);
    };
    const auto models = counted_models(options.blocks.quick);
    if (std::ranges::none_of(models, wanted)) {
        throw CLI::ValidationError("--only", "no step's name contains any of these");
    }
    const card on = find_card(options.card).value();
    std::printf("%s: %.0f GB/s, %.0f TFLOP/s in products, %.1f us to start a kernel\n", options.card.c_str(),
                on.bytes_per_second * 1e-9, on.flops_per_second * 1e-12, on.launch_seconds * 1e6);
    json steps = json::array();
    for (const counted_model& model : models) {
        if (!wanted(model)) { continue; }
        for (const int batch : options.blocks.batches) {
            const counted_step found = model.count(batch, on);
            const double pulse = found.book.total(party::pulse).seconds;
            const double ratio = found.book.total(party::torch).seconds / pulse;
            std::printf("\nstep %s, batch %d, %.1f M parameters\n", model.name, batch,
                        static_cast<double>(found.parameters) * 1e-6);
            print_step(found.book, options.markdown);
            std::printf("estimated: %.2f ms, %.2f times the least; %.1f times as fast as torch.compile\n", pulse * 1e3,
                        pulse / found.book.total(party::least).seconds, ratio);
            std::fflush(stdout);
            steps.push_back({{"model", model.name},
                             {"batch", batch},
                             {"parameters", found.parameters},
                             {"speedup", ratio},
                             {"parties", json_of(found.book)},
                             {"products", products_of(found.book)}});
        }
    }
    file.write({{"format", "pulse-bench-blocks-count/1"},
                {"card", options.card},
                {"gb_per_s", on.bytes_per_second * 1e-9},
                {"tflop_per_s", on.flops_per_second * 1e-12},
                {"launch_us", on.launch_seconds * 1e6},
                {"steps", steps}});
    return 0;
}

} // namespace pulse_bench
