#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/tar.hpp>

#include <data/pictures.hpp>
#include <data/python.hpp>
#include <io/scratch.hpp>

namespace {

using pulse::test::tar_end;
using pulse::test::tar_file;
using pulse::test::tar_header;

std::vector<pulse::data::tar_member> read_bytes(const std::string& bytes) {
    return pulse::data::read_tar(pulse::test::bytes_in_memory{bytes});
}

std::string refusal_of_tar(const std::string& bytes) {
    try {
        (void)read_bytes(bytes);
    } catch (const pulse::input_error& fault) { return fault.what(); }
    return "read";
}

// Every form that Python's tarfile writes, with long names, accents, folders, device entries and empty files.
constexpr const char* write_archives = R"(
import io, sys, tarfile
folder = sys.argv[1]
def fill(archive, names):
    for i, name in enumerate(names):
        info = tarfile.TarInfo(name)
        if name.endswith('/'):
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
            continue
        data = bytes((i * 7 + j) % 251 for j in range([0, 1, 511, 512, 513, 3000][i % 6]))
        info.size = len(data)
        if i % 3 == 0 and archive.format == tarfile.PAX_FORMAT:
            info.pax_headers = {'comment': 'x' * (40 * i), 'mtime': '12.5'}
        archive.addfile(info, io.BytesIO(data))
plain = ['a.jpg', 'a.txt', 'sub/', 'sub/b.x.jpg', 'empty', '0' * 99]
long = ['d' * 60 + '/' + 'e' * 80 + '.jpg', 'd' * 100 + '/' + 'f' * 99]
longer = ['g' * 300 + '.png', 'h/' * 150 + 'i.txt', 'caf\u00e9.jpg', '\u732b/\u732b.txt', 'end.jpg']
for name, form, names in [('ustar', tarfile.USTAR_FORMAT, plain + long),
                          ('gnu', tarfile.GNU_FORMAT, plain + long + longer),
                          ('pax', tarfile.PAX_FORMAT, plain + long + longer)]:
    with tarfile.open(f'{folder}/{name}.tar', 'w', format=form) as archive:
        fill(archive, names)
comment = {'comment': 'all of them'}
with tarfile.open(f'{folder}/global.tar', 'w', format=tarfile.PAX_FORMAT, pax_headers=comment) as archive:
    fill(archive, plain)
for name in ['ustar', 'gnu', 'pax', 'global']:
    with tarfile.open(f'{folder}/{name}.tar') as archive, open(f'{folder}/{name}.list', 'w', encoding='utf-8') as out:
        for member in archive:
            if member.isreg():
                out.write(f'{member.offset_data} {member.size} {member.name}\n')
)";

} // namespace

TEST_CASE("the members of an archive are where Python's tarfile finds them") {
    if (!pulse::test::python_has("tarfile")) { return; }
    const pulse::test::scratch folder;
    pulse::test::put(folder.path / "write.py", write_archives);
    REQUIRE(pulse::test::run_python((folder.path / "write.py").string(), "'" + folder.path.string() + "'"));
    for (const std::string name : {"ustar", "gnu", "pax", "global"}) {
        CAPTURE(name);
        const auto members = pulse::data::read_tar(pulse::data::input_file{folder.path / (name + ".tar")});
        std::ifstream list{folder.path / (name + ".list")};
        std::size_t count = 0;
        for (pulse::data::tar_member expected; list >> expected.offset >> expected.bytes; ++count) {
            list.ignore(1);
            std::getline(list, expected.name);
            REQUIRE(count < members.size());
            CHECK(members[count] == expected);
        }
        CHECK(count == members.size());
        CHECK(count >= 5);
    }
}

TEST_CASE("sizes in binary and names in a prefix are read") {
    std::string header = tar_header("a.jpg", 0);
    header.replace(345, 3, "d/e");
    header.replace(124, 12, std::string{"\x80\0\0\0\0\0\0\0\0\0\0\x03", 12});
    std::size_t sum = 0;
    for (std::size_t i = 0; i != header.size(); ++i) {
        sum += i >= 148 && i < 156 ? std::size_t{' '} : static_cast<unsigned char>(header[i]);
    }
    for (std::size_t i = 154; i != 148; --i, sum /= 8) {
        header[i - 1] = static_cast<char>('0' + static_cast<char>(sum % 8));
    }
    const auto members = read_bytes(header + "xyz" + std::string(509, '\0') + tar_end());
    REQUIRE(members.size() == 1);
    CHECK(members[0] == pulse::data::tar_member{"d/e/a.jpg", 512, 3});
}

TEST_CASE("damage of an archive is named with its byte") {
    const std::string good = tar_file("a.jpg", "12345");
    CHECK(refusal_of_tar(good + tar_end()) == "read");
    CHECK(refusal_of_tar(good) == "read"); // without an end, as a killed program leaves it
    CHECK(refusal_of_tar(good + good.substr(0, 300)) == "'memory': the tar archive ends within a header at byte 1024");
    CHECK(refusal_of_tar(good + good.substr(0, 514)) ==
          "'memory': the tar archive ends within the member that begins at byte 1024");
    std::string bad = good;
    bad[3] = 'x';
    CHECK(refusal_of_tar(good + bad) == "'memory': the tar archive has a header with a wrong checksum at byte 1024");
    CHECK(refusal_of_tar(tar_header("l", 0, '2')) ==
          "'memory': the tar archive holds the link 'l', not a file, at byte 0");
    CHECK(refusal_of_tar(tar_header("s", 0, 'S')).find("sparse") != std::string::npos);
    CHECK(refusal_of_tar(tar_file("x", "9 a=b\n", 'x')).find("not a list of records") != std::string::npos);
    CHECK(refusal_of_tar(tar_file("x", "12 size=-1\n", 'x')).find("not a list of records") != std::string::npos);
    CHECK(refusal_of_tar(tar_file("x", "11 size=-1\n", 'x')).find("size is not a number") != std::string::npos);
    CHECK(refusal_of_tar(tar_header("x", std::size_t{1} << 32U, 'x')).find("ends within") != std::string::npos);
    CHECK(refusal_of_tar(tar_file("x", "18 size=999999999\n", 'x') + good).find("ends within") != std::string::npos);
}
