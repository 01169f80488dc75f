/* Example: runs steps of a program for TVM on data from files.
 *
 *     poetc_tvm_example LIBRARY DIRECTORY [STEPS [STORE_FILE]]
 *
 *     DIRECTORY/argN.bin   the bytes of argument N, row-major, little-endian, i1 as one byte
 *     DIRECTORY/outN.bin   the same of result N, written after the last step
 *
 * Pages go to STORE_FILE, which a program that does not page can do without. Parameters on storage
 * are in it, too: then `poetc pack` makes it.
 */
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "poetc_tvm.h"
#include "store_file.h"

namespace {

std::string file_name(const std::string &directory, const char *kind, size_t i)
{
    return directory + "/" + kind + std::to_string(i) + ".bin";
}

void load(const std::string &directory, size_t i, const poetc::Place &place)
{
    const std::string path = file_name(directory, "arg", i);
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open() || data.size() != place.bytes) {
        throw std::runtime_error(path + ": not " + std::to_string(place.bytes) + " bytes");
    }
    std::copy(data.begin(), data.end(), reinterpret_cast<char *>(place.memory));
}

void save(const std::string &directory, size_t i, const poetc::Place &place)
{
    const std::string path = file_name(directory, "out", i);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(place.memory),
               static_cast<std::streamsize>(place.bytes));
    if (!file.flush()) {
        throw std::runtime_error(path + ": cannot be written");
    }
}

void run(const std::string &library, const std::string &directory, unsigned long steps,
         poetc_store *store)
{
    poetc::Program program(library, store);
    for (unsigned long step = 0; step < steps; ++step) {
        for (size_t i = 0; i < program.arguments(); ++i) {
            const poetc::Place &place = program.argument(i);
            if (place.memory != nullptr && (step == 0 || !place.is_param)) {
                load(directory, i, place);
            }
        }
        program.step();
    }
    for (size_t i = 0; i < program.results(); ++i) {
        if (program.result(i).memory != nullptr) {
            save(directory, i, program.result(i));
        }
    }
    std::printf("steps: %lu, arena: %zu bytes, storage: %zu bytes\n", steps, program.arena_bytes(),
                program.storage_bytes());
}

} // namespace

int main(int argc, char **argv)
{
    char *end = nullptr;
    const unsigned long steps = argc > 3 ? std::strtoul(argv[3], &end, 10) : 1;
    if (argc < 3 || argc > 5 || (end != nullptr && *end != '\0') || steps == 0) {
        std::cerr << "usage: " << argv[0] << " LIBRARY DIRECTORY [STEPS [STORE_FILE]]\n";
        return 2;
    }
    poetc_file_store file{};
    if (argc > 4) {
        if (poetc_file_store_open_image(&file, argv[4]) != POETC_OK
            && poetc_file_store_open(&file, argv[4]) != POETC_OK) {
            std::perror(argv[4]);
            return 1;
        }
    }
    poetc_store *store = argc > 4 ? &file.store : nullptr;
    int status = 0;
    try {
        run(argv[1], argv[2], steps, store);
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        status = 1;
    }
    if (store != nullptr && poetc_file_store_close(&file) != POETC_OK) {
        std::perror(argv[4]);
        status = 1;
    }
    return status;
}
