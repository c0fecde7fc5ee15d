#include <doctest/doctest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous_address.hpp>
#include <pulse/launch/tcp_store.hpp>

using namespace pulse;
using namespace pulse::launch;

namespace {

using variables = std::map<std::string, std::string>;

const variables by_pulse{{"PULSE_RANK", "2"},
                         {"PULSE_WORLD_SIZE", "8"},
                         {"PULSE_LOCAL_RANK", "0"},
                         {"PULSE_LOCAL_SIZE", "2"},
                         {"PULSE_NODE", "1"}};
const variables by_torchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"GROUP_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "job"}};
const variables by_open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_MCA_ess_base_jobid", "1612120065"}};
const variables by_pmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const variables by_slurm{{"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "6"},
                         {"SLURM_STEP_NUM_TASKS", "8"},
                         {"SLURM_LOCALID", "2"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "16"},
                         {"SLURM_STEP_NODELIST", "gpu[07-08],login"},
                         {"SLURM_JOB_ID", "991"}};

rank_identity who(const variables& set, const identity_arguments& given = {}) {
    return identify(given, environment{set});
}

/// The error of identify.
std::string refusal(const variables& set, const identity_arguments& given = {}) {
    try {
        static_cast<void>(who(set, given));
    } catch (const input_error& e) { return e.what(); }
    return {};
}

variables with(variables set, const variables& more) {
    for (const auto& [name, value] : more) { set[name] = value; }
    return set;
}
variables without(variables set, const std::string& name) {
    set.erase(name);
    return set;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("every launcher's variables say who a process is") {
    CHECK(who({}) == rank_identity{0, 1, 0, 1, 0, "single process"});
    CHECK(who(by_pulse) == rank_identity{2, 8, 0, 2, 1, "PULSE_RANK"});
    CHECK(who(by_torchrun) == rank_identity{5, 8, 1, 4, 1, "torchrun"});
    CHECK(who(by_open_mpi) == rank_identity{3, 4, 1, 2, -1, "Open MPI"});
    CHECK(who(by_pmi) == rank_identity{1, 2, 1, 2, -1, "PMI"});
    CHECK(who(by_slurm) == rank_identity{6, 8, 2, -1, 1, "Slurm"});
    CHECK(who(without(by_slurm, "SLURM_STEP_NUM_TASKS")).world_size == 16);
    // an allocation without a step has started a single process
    CHECK(who(without(by_slurm, "SLURM_STEP_ID")).source == "single process");
}

TEST_CASE("arguments win over PULSE_ variables, these over any launcher, and launchers over what started them") {
    CHECK(who(with(by_pulse, by_open_mpi), {.rank = 1, .world_size = 3}) ==
          rank_identity{1, 3, -1, -1, -1, "arguments"});
    CHECK(who(with(by_pulse, by_open_mpi)).source == "PULSE_RANK");
    CHECK(who(with(by_pulse, by_torchrun)).source == "PULSE_RANK");
    // those launchers started torchrun once per node
    CHECK(who(with(by_torchrun, by_open_mpi)).source == "torchrun");
    CHECK(who(with(by_torchrun, by_slurm)).source == "torchrun");
    // Slurm started the daemons of mpirun
    CHECK(who(with(by_open_mpi, by_slurm)).source == "Open MPI");
    CHECK(who(with(by_pmi, by_slurm)).source == "PMI");
    CHECK(who(by_open_mpi, {.local_rank = 0, .node = 4}) == rank_identity{3, 4, 0, 2, 4, "Open MPI"});
    CHECK(who({}, {.world_size = 1}).world_size == 1);
}

TEST_CASE("what is no number, or lacks its partner, is named") {
    const std::vector<std::pair<const variables*, std::pair<std::string, std::string>>> partners{
        {&by_pulse, {"PULSE_RANK", "PULSE_WORLD_SIZE"}},
        {&by_torchrun, {"RANK", "WORLD_SIZE"}},
        {&by_open_mpi, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
        {&by_pmi, {"PMI_RANK", "PMI_SIZE"}}};
    for (const auto& [set, names] : partners) {
        const auto& [rank, size] = names;
        CHECK(contains(refusal(without(*set, rank)), size + " is set, but " + rank + " is not"));
        CHECK(contains(refusal(without(*set, size)), rank + " is set, but " + size + " is not"));
        for (const std::string nonsense : {"", "two", "-1", "1.5", " 1", "1 ", "99999999999"}) {
            CHECK(contains(refusal(with(*set, {{rank, nonsense}})), "variable " + rank + ":"));
            CHECK(contains(refusal(with(*set, {{size, nonsense}})), "variable " + size + ":"));
        }
        CHECK(contains(refusal(with(*set, {{size, "0"}})), size + "=0"));
        CHECK(contains(refusal(with(*set, {{rank, "8"}})), rank + "=8 must be at least 0 and below " + size));
    }
    CHECK(contains(refusal(with(by_slurm, {{"SLURM_LOCALID", "x"}})), "variable SLURM_LOCALID:"));
    CHECK(contains(refusal({{"PULSE_LOCAL_RANK", "0"}}), "PULSE_LOCAL_RANK is set, but PULSE_RANK is not"));
    CHECK(contains(refusal({}, {.rank = 1}), "argument rank is given"));
    CHECK(contains(refusal({}, {.world_size = 4}), "the rank of this process is unknown"));
    CHECK(contains(refusal({}, {.rank = 4, .world_size = 4}), "rank=4 must be at least 0 and below world size=4"));
    CHECK(contains(refusal({}, {.rank = -1, .world_size = 4}), "rank=-1"));
}

TEST_CASE("contradictions are refused, by name") {
    CHECK(contains(refusal(with(by_pulse, {{"PULSE_LOCAL_RANK", "2"}})), "PULSE_LOCAL_RANK=2"));
    CHECK(contains(refusal(with(by_torchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
                   "LOCAL_WORLD_SIZE=9 must be at least 1 and at most WORLD_SIZE=8"));
    CHECK(contains(refusal(with(by_open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "0"}})), "OMPI_COMM_WORLD_LOCAL_SIZE=0"));
    CHECK(contains(refusal(with(by_slurm, {{"SLURM_LOCALID", "8"}})), "SLURM_LOCALID=8"));
    CHECK(contains(refusal(by_open_mpi, {.world_size = 8}), "world size=8 contradicts Open MPI, which says 4"));
    CHECK(contains(refusal(by_open_mpi, {.rank = 0}), "rank=0 contradicts Open MPI, which says 3"));
    // left over from another run: each of the four processes would be the only rank
    CHECK(contains(refusal(with(by_open_mpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
                   "WORLD_SIZE=1 contradicts OMPI_COMM_WORLD_SIZE=4"));
    CHECK(contains(refusal(with(by_pmi, {{"PULSE_RANK", "0"}, {"PULSE_WORLD_SIZE", "1"}})),
                   "PULSE_WORLD_SIZE=1 contradicts PMI_SIZE=2"));
}

namespace {

rendezvous_address place(const variables& set) {
    const environment from{set};
    return find_rendezvous(identify({}, from), from);
}
std::string no_place(const variables& set) {
    try {
        static_cast<void>(place(set));
    } catch (const input_error& e) { return e.what(); }
    return {};
}
endpoint at(const variables& set) { return place(set).at; }

} // namespace

TEST_CASE("the ranks meet where PULSE_STORE, torchrun or Slurm says, or on their only machine") {
    CHECK(at(with(by_torchrun, {{"PULSE_STORE", "[fe80::1]:77"}})) == endpoint{"fe80::1", 77});
    CHECK(to_text(endpoint{"fe80::1", 77}) == "[fe80::1]:77");
    CHECK(at(by_torchrun) == endpoint{"node0", 29501});
    CHECK(at(by_slurm).host == "gpu07");
    CHECK(at(by_pmi).host == "127.0.0.1");
    for (const std::string folder : {"file:///shared/run", "file:here", "file:", "file:77"}) {
        CHECK(no_place({{"PULSE_STORE", folder}}) ==
              "pulse: PULSE_STORE: '" + folder + "' is a folder; it must be HOST:PORT of rank 0");
    }
    CHECK(contains(no_place(by_open_mpi), "ranks meet is unknown: set PULSE_STORE"));
    CHECK(contains(no_place(without(by_torchrun, "MASTER_PORT")), "MASTER_PORT"));
    for (const std::string bad : {"", "host", ":1", "host:", "host:66000", "host:x", "a:b:1"}) {
        CHECK(contains(no_place({{"PULSE_STORE", bad}}), "PULSE_STORE"));
    }
    CHECK(contains(no_place(with(by_torchrun, {{"MASTER_PORT", "65535"}})), "MASTER_PORT"));
    CHECK(first_host("login,gpu[1-2]") == "login");
    CHECK(first_host("gpu[9]") == "gpu9");
    CHECK(first_host("a[1,3]-b[4-5],c") == "a1-b4");
}

TEST_CASE("a run has a name of its own wherever its launcher gives one") {
    CHECK(place(by_pmi).run_id.empty());
    CHECK(run_id_of(environment{by_open_mpi}) == "1612120065");
    CHECK(run_id_of(environment{by_slurm}) == "991.0");
    CHECK(run_id_of(environment{with(by_torchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})}) == "job.3");
    CHECK(run_id_of(environment{with(by_torchrun, {{"PULSE_RUN_ID", "mine"}})}) == "mine");
    // two jobs on one machine do not share a port
    CHECK(at(with(by_pmi, {{"PULSE_RUN_ID", "a"}})).port != at(with(by_pmi, {{"PULSE_RUN_ID", "b"}})).port);
}

TEST_CASE("single processes that start at once on one machine do not take each other's port") {
    const auto alone = place({});
    const tcp_store first{identify({}, environment{variables{}}), {.where = alone.at, .run_id = alone.run_id}};
    const tcp_store second{identify({}, environment{variables{}}), {.where = alone.at, .run_id = alone.run_id}};
    CHECK(first.where() != second.where());
}
