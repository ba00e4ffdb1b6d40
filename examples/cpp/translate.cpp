// Translate greedily, without Python, with a model that `deepwire export --format aotinductor` wrote.
//
//     translate FOLDER < sources.ids > translations.ids
//
// A line holds the numbers of a sentence's subwords, without begin and end symbols; so does a translation.
// Models of one direction alone. README.md says how to build it.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

using Graph = torch::inductor::AOTIModelPackageLoader;
using Tensors = std::vector<torch::Tensor>;
constexpr int64_t PAD = 0, BOS = 1, EOS = 2, UNK = 3;

// A value of the manifest whose name occurs once.
std::string value(const std::string& manifest, const std::string& name) {
    std::smatch found;
    if (!std::regex_search(manifest, found, std::regex("\"" + name + "\": *([^,\\s}]+)")))
        throw std::runtime_error("manifest.json has no " + name);
    return found[1];
}

// What a sentence's decoder goes on from.
struct Begun {
    Tensors memory, state;
    torch::Tensor log_probs;
    int64_t position;
};

class Translator {
  public:
    explicit Translator(const std::filesystem::path& folder) {
        std::ifstream file(folder / "manifest.json");
        if (!file) throw std::runtime_error("there is no manifest.json in " + folder.string());
        std::stringstream text;
        text << file.rdbuf();
        const std::string manifest = text.str();
        source_bos = value(manifest, "source_bos") == "true";
        pieces = std::stoll(value(manifest, "target_pieces"));
        ratio = std::stod(value(manifest, "max_length_ratio"));
        extra = std::stoll(value(manifest, "max_length_extra"));
        alone = std::filesystem::exists(folder / "prompt.pt2");
        for (const std::string name : {"encoder", "start", "prompt", "step"})
            if ((name == "prompt") == alone || name == "step")
                graphs.push_back(std::make_unique<Graph>((folder / (name + ".pt2")).string()));
    }

    std::vector<int64_t> translate(std::vector<int64_t> source) {
        if (source.empty()) return {};
        if (source_bos) source.insert(source.begin(), BOS);
        const int64_t limit = std::max<int64_t>(1, static_cast<int64_t>(ratio * source.size()) + extra);
        source.push_back(EOS);
        Begun at = begin(torch::tensor(source, torch::kInt64).view({1, -1}));
        std::vector<int64_t> words;
        while (static_cast<int64_t>(words.size()) < limit) {
            at.log_probs.narrow(-1, pieces, at.log_probs.size(-1) - pieces).fill_(NEVER);
            for (const int64_t symbol : {PAD, BOS, UNK}) at.log_probs.select(-1, symbol).fill_(NEVER);
            const int64_t word = at.log_probs.argmax(-1).item<int64_t>();
            if (word == EOS) break;
            words.push_back(word);
            step(at, word);
        }
        return words;
    }

  private:
    static constexpr double NEVER = -std::numeric_limits<double>::infinity();
    std::vector<std::unique_ptr<Graph>> graphs;
    bool source_bos, alone;
    double ratio;
    int64_t pieces, extra;

    // The graphs take and give their tensors in the order of the manifest.
    Begun begin(const torch::Tensor& source) {
        const torch::Tensor first = torch::full({1, 1}, BOS, torch::kInt64);
        if (alone) {
            Tensors read = graphs[0]->run({source, first});
            return {{}, Tensors(read.begin() + 1, read.end()), read[0], source.size(1) + 1};
        }
        Begun at{{}, graphs[1]->run(graphs[0]->run({source})), {}, 0};
        step(at, BOS);  // it reads memory and state, and gives the next state: so many tensors are state
        return at;
    }

    void step(Begun& at, int64_t word) {
        Tensors given = {torch::full({1, 1}, word, torch::kInt64), torch::tensor(at.position++, torch::kInt64)};
        given.insert(given.end(), at.memory.begin(), at.memory.end());
        given.insert(given.end(), at.state.begin(), at.state.end());
        const Tensors found = graphs.back()->run(given);
        const auto states = static_cast<std::ptrdiff_t>(found.size()) - 1;
        at.memory.insert(at.memory.end(), at.state.begin(), at.state.end() - states);
        at.state.assign(found.begin() + 1, found.end());
        at.log_probs = found[0];
    }
};

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: translate FOLDER < sources.ids\n";
        return 2;
    }
    try {
        torch::InferenceMode quick;
        Translator translator(arguments[1]);
        for (std::string line; std::getline(std::cin, line);) {
            std::istringstream numbers(line);
            std::vector<int64_t> source;
            for (int64_t number; numbers >> number;) source.push_back(number);
            const char* between = "";
            for (const int64_t word : translator.translate(std::move(source))) {
                std::cout << between << word;
                between = " ";
            }
            std::cout << '\n';
        }
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
        return 1;
    }
}
