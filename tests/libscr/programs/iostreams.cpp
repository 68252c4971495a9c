// A C++ program with the functions of SCR 1: one checkpoint, if one is due, of a file that has only been extended to
// its size.
//
//     iostreams MEGABYTES RESULTS
//
// RESULTS/result.<rank>: the size of the file that it restarted from (0: none), and whether a checkpoint was due.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "scr.h"

namespace {

long size_of(const char *path)
{
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    return file ? static_cast<long>(file.tellg()) : 0;
}

bool checkpoint(const std::string &name, const std::string &megabytes)
{
    char path[SCR_MAX_FILENAME];
    if (SCR_Start_checkpoint() != SCR_SUCCESS) {
        return false;
    }
    std::cout << "In: " << name << std::endl;
    const bool routed = SCR_Route_file(name.c_str(), path) == SCR_SUCCESS;
    const std::string command = "truncate -s " + megabytes + "M '" + path + "'";
    const bool valid = routed && std::system(command.c_str()) == 0;
    std::cout << "Out: " << path << std::endl;
    return SCR_Complete_checkpoint(valid) == SCR_SUCCESS && valid;
}

} // namespace

int main(int argc, char **argv)
{
    int rank = 0, due = 0;
    char path[SCR_MAX_FILENAME];
    if (argc != 3 || SCR_Init() != SCR_SUCCESS || HOLDFAST_Rank(&rank, NULL) != SCR_SUCCESS) {
        return 2;
    }
    std::ostringstream name;
    name << "rank_" << rank;
    const long found = SCR_Route_file(name.str().c_str(), path) == SCR_SUCCESS ? size_of(path) : 0;
    if (SCR_Need_checkpoint(&due) != SCR_SUCCESS || (due && !checkpoint(name.str(), argv[1]))) {
        return 3;
    }
    std::ostringstream result;
    result << argv[2] << "/result." << rank;
    std::ofstream(result.str().c_str()) << found << ' ' << due << '\n';
    return SCR_Finalize() == SCR_SUCCESS ? 0 : 4;
}
