#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/csv.hpp>
#include <pulse/data/metadata.hpp>

#include <data/python.hpp>
#include <io/scratch.hpp>

namespace {

using pulse::data::metadata_line;

std::string refusal_of_csv(std::string_view text, const std::string& column = {}) {
    try {
        (void)pulse::data::parse_metadata_csv(text, "m.csv", column);
    } catch (const pulse::input_error& fault) { return fault.what(); }
    return "read";
}

// Fields of everything that CSV has trouble with, written by Python in its dialects, and the same rows as JSON.
constexpr const char* write_tables = R"(
import csv, json, random, sys
draw = random.Random(1)
folder = sys.argv[1]
def field(pieces):
    return 'x' + ''.join(draw.choice(pieces) for _ in range(draw.randrange(8))) + 'y'
for n in range(int(sys.argv[2])):
    quoting = draw.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
    end = draw.choice(['\r\n', '\n', '\r'])
    pieces = ['a', ' ', ',', '"', '""', ';', '\t', "'", 'caf\u00e9', '\u732b', '\\', '#']
    # Left bare, a line end of another kind than the file's is one to every reader.
    pieces += ['\r\n', '\n', '\r'] if quoting != csv.QUOTE_MINIMAL or end == '\r\n' else [end]
    columns = ['file_name', draw.choice(['text', 'caption', 'prompt']), 'width', field(pieces)]
    draw.shuffle(columns)
    with open(f'{folder}/{n}.csv', 'w', encoding=draw.choice(['utf-8', 'utf-8-sig']), newline='') as table, \
            open(f'{folder}/{n}.jsonl', 'w', encoding='utf-8') as lines:
        out = csv.writer(table, quoting=quoting, lineterminator=end)
        out.writerow(columns)
        for _ in range(draw.randrange(6)):
            row = [draw.randrange(100) if name == 'width' else field(pieces) for name in columns]
            if draw.randrange(4) == 0:
                row[next(i for i, name in enumerate(columns) if name in ('text', 'caption', 'prompt'))] = ''
            out.writerow(row)
            lines.write(json.dumps({name: None if value == '' and quoting == csv.QUOTE_MINIMAL and
                                    name in ('text', 'caption', 'prompt') else value
                                    for name, value in zip(columns, row)}) + '\n')
)";

} // namespace

TEST_CASE("CSV is read as Python's csv module writes it") {
    if (!pulse::test::python_has("csv")) { return; }
    const pulse::test::scratch folder;
    pulse::test::put(folder.path / "write.py", write_tables);
    constexpr int tables = 400;
    REQUIRE(pulse::test::run_python((folder.path / "write.py").string(),
                                    "'" + folder.path.string() + "' " + std::to_string(tables)));
    std::size_t rows = 0;
    for (int n = 0; n != tables; ++n) {
        CAPTURE(n);
        const auto file = [&](const char* ending) {
            return pulse::test::bytes_of(folder.path / (std::to_string(n) + ending));
        };
        const auto read = pulse::data::parse_metadata_csv(file(".csv"), "m.csv");
        CHECK(read == pulse::data::parse_metadata(file(".jsonl"), "m.jsonl"));
        rows += read.size();
    }
    CHECK(rows > 500);
}

TEST_CASE("the caption is the column that is asked for, else the first of three") {
    const std::string table = "prompt,file_name,caption,blip\np,1.png,c,b\n";
    const auto text = [&](const std::string& column) {
        return pulse::data::parse_metadata_csv(table, "m.csv", column).front().text.value();
    };
    CHECK(text("") == "c");
    CHECK(text("prompt") == "p");
    CHECK(text("blip") == "b");
    CHECK(text("file_name") == "1.png");
    CHECK(refusal_of_csv(table, "nil") == "m.csv: line 1: has no caption field: expected 'nil', found "
                                          "'prompt', 'file_name', 'caption', 'blip'");
    CHECK(pulse::data::parse_metadata_csv("", "m.csv").empty());
}

TEST_CASE("a wrong row of metadata.csv is named with its line") {
    const std::string good = "file_name,text\r\n\r\n1.png,\"a\n\nb\"\r\n";
    CHECK(refusal_of_csv(good) == "read");
    CHECK(refusal_of_csv(good + "2.png") == "m.csv: line 6: the row has 1 fields, but there are 2 columns");
    CHECK(refusal_of_csv(good + "2.png,a,b") == "m.csv: line 6: the row has 3 fields, but there are 2 columns");
    CHECK(refusal_of_csv(good + "2.png,\"a") == "m.csv: line 6: the quotes of a field are not closed");
    CHECK(refusal_of_csv(good + "2.png,\"a\"b") == "m.csv: line 6: a field continues after its closing quotes");
    CHECK(refusal_of_csv(good + "2.png,\xFF") == "m.csv: line 6: text: the caption is not UTF-8 from byte 0");
    CHECK(refusal_of_csv(good + "../2.png,a") ==
          "m.csv: line 6: file_name is '../2.png', which does not name a file below the folder");
    CHECK(refusal_of_csv("file;text\n") ==
          "m.csv: line 1: has no caption field: expected 'text', 'caption' or 'prompt', "
          "found 'file;text'");
    CHECK(refusal_of_csv("file,text\n") == "m.csv: line 1: there is no column 'file_name'");
    CHECK(refusal_of_csv("file_name,text,text\n") == "m.csv: line 1: the column 'text' occurs twice");
}
