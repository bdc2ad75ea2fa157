#include "core/checkpoint/checkpoint.hpp"

#include <utility>

#include "core/checkpoint/errors.hpp"
#include "core/checkpoint/file.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/error.hpp"

namespace exphil::core {

namespace {

using Kind = ErlangTerm::Kind;

constexpr std::size_t kContainerHead = 5;  // flag, metadata size
constexpr std::uint8_t kExternalTerm = 131;

// A safetensors file may also start with byte 0, 1 or 131, if its header length ends in that byte. A '{'
// after 8 bytes decides. No container has one there: its byte 8 is part of the count of its metadata map,
// which is zero, or is the byte order after "nx"; in a compressed container without metadata the header
// length would exceed any file.
bool looks_like_safetensors(const File& file) {
  return file.head()[8] == '{' && file.head()[6] == 0 && file.head()[7] == 0;
}

// Null for a number, an atom or a binary.
const char* other_kind(const ErlangTerm& term) {
  switch (term.kind) {
    case Kind::big:
      return "an integer beyond 64 bits";
    case Kind::tuple:
      return "a tuple";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
    default:
      return nullptr;
  }
}

std::string value_text(const ErlangTerm& term) {
  if (term.kind == Kind::integer) return std::to_string(term.integer);
  if (term.kind == Kind::real) return message(term.real);
  return std::string(term.text);
}

void add_option(const ErlangTerm& key, const ErlangTerm& value, BuildOptions* options) {
  if (key.kind != Kind::atom) bad("the build options have a key that is not an atom");
  const std::string name(key.text);
  const char* const other = other_kind(value);
  const bool known = options->values.count(name) != 0 || options->others.count(name) != 0;
  if (known) bad("the build options name ", quote(name), " twice");
  if (other != nullptr) {
    options->others.emplace(name, other);
  } else {
    options->values.emplace(name, value_text(value));
  }
}

// Edifice's spec: arch, and build_opts as a keyword list.
BuildOptions build_of_spec(const ErlangTerm& spec) {
  const ErlangTerm *arch = spec.atom_key("arch"), *options = spec.atom_key("build_opts");
  if (arch == nullptr || arch->kind != Kind::atom) bad("the metadata's __edifice_spec__ has no arch");
  if (options == nullptr || options->kind != Kind::list) {
    bad("the metadata's __edifice_spec__ has no build_opts, or they are not a list");
  }
  BuildOptions build;
  build.arch = std::string(arch->text);
  for (const ErlangTerm& pair : options->items) {
    if (pair.kind != Kind::tuple || pair.items.size() != 2)
      bad("the metadata's build_opts are not a keyword list");
    add_option(pair.items[0], pair.items[1], &build);
  }
  return build;
}

// ExPhil's config: a map.
BuildOptions build_of_config(const ErlangTerm& config) {
  if (config.kind != Kind::map) bad("the policy's config is not a map");
  BuildOptions build;
  build.arch = "exphil_policy";
  for (std::size_t i = 0; i < config.items.size(); i += 2) {
    add_option(config.items[i], config.items[i + 1], &build);
  }
  return build;
}

std::optional<BuildOptions> build_of_metadata(const ErlangTerm& metadata) {
  if (metadata.kind != Kind::map) bad("the metadata is not a map");
  const ErlangTerm *config = metadata.atom_key("config"), *spec = metadata.binary_key("__edifice_spec__");
  const bool policy = spec == nullptr || build_of_spec(*spec).arch == "exphil_policy";
  if (config != nullptr && policy) return build_of_config(*config);
  if (spec != nullptr) return build_of_spec(*spec);
  return std::nullopt;
}

}  // namespace

struct Checkpoint::Contents {
  std::string path;
  Format format = Format::safetensors;
  std::optional<Safetensors> safetensors;
  InflationLimit limit{0};             // of the file's compressed parts
  FileBytes file;                      // other formats: the views point into this ...
  ExternalTerm term;                   // ... or, where it is compressed, into this ...
  std::unique_ptr<ByteSource> source;  // ... or this
  TensorMap tensors;
  std::map<std::string, std::string> metadata;
  std::optional<BuildOptions> build;
};

std::unique_ptr<Checkpoint::Contents> Checkpoint::read_container(File& file) {
  const std::uint64_t size = file.size();
  auto contents = std::make_unique<Contents>();
  contents->path = file.path();
  contents->limit = InflationLimit(size);
  contents->file = read_bytes(file, size);
  if (contents->file.get()[0] == kExternalTerm) {
    read_term(size, contents.get());
  } else {
    read_parts(size, contents.get());
  }
  return contents;
}

// ExPhil's older form.
void Checkpoint::read_term(std::uint64_t size, Contents* contents) {
  contents->format = Format::term;
  contents->term = read_external_term(contents->file.get(), size, "the policy", contents->limit);
  const ErlangTerm *params = contents->term.root.atom_key("params"),
                   *config = contents->term.root.atom_key("config");
  if (params == nullptr || config == nullptr) bad("the policy is not a map with params and config");
  contents->tensors = read_nx_structs(*params, "the params");
  contents->build = build_of_config(*config);
}

// A flag, the metadata, the tensors.
void Checkpoint::read_parts(std::uint64_t size, Contents* contents) {
  const std::uint8_t* bytes = contents->file.get();
  contents->format = Format::container;
  if (size < kContainerHead)
    bad("the container is truncated: it has ", size, " bytes, fewer than its head of 5");
  std::uint64_t metadata = 0;
  for (std::size_t i = 1; i < kContainerHead; ++i) metadata = metadata << 8 | bytes[i];
  if (metadata > size - kContainerHead) {
    bad("the container is truncated: it announces ", metadata, " bytes of metadata and has ",
        size - kContainerHead);
  }
  if (metadata > 0) {
    const ExternalTerm term =
        read_external_term(bytes + kContainerHead, metadata, "the metadata", contents->limit, kMaxTermBytes);
    contents->build = build_of_metadata(term.root);
  }
  const std::uint8_t* tensors = bytes + kContainerHead + metadata;
  const std::size_t left = size - kContainerHead - metadata;
  const std::string what = "the tensor part";
  if (bytes[0] == 0) {
    contents->source = std::make_unique<PlainBytes>(tensors, left, what);
  } else {
    contents->source = std::make_unique<InflatedBytes>(tensors, left, what, contents->limit);
  }
  contents->tensors = read_nx_serialized(*contents->source, what, contents->limit);
}

Checkpoint Checkpoint::open(const std::string& path) {
  File file(path);
  if (file.size() == 0) bad(quote_path(path), " is empty");
  const std::uint8_t first = file.head()[0];
  if (looks_like_safetensors(file)) {
    auto contents = std::make_unique<Contents>();
    contents->path = path;
    contents->safetensors.emplace(Safetensors::read(file));
    contents->tensors = contents->safetensors->tensors();
    contents->metadata = contents->safetensors->metadata();
    return Checkpoint(std::move(contents));
  }
  if (first != 0 && first != 1 && first != kExternalTerm) {
    bad(quote_path(path), " is no checkpoint: neither a safetensors file, in which '{' follows 8 bytes of ",
        "length, nor one of Edifice or ExPhil, which starts with 0, 1 or 131; it starts with ", int{first});
  }
  try {
    return Checkpoint(read_container(file));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_checkpoint && error.kind() != ErrorKind::limit_exceeded) throw;
    fail(error.kind(), error.argument(), quote_path(path), " (first byte ", int{first},
         ": a file of Edifice or ExPhil): ", error.what());
  }
}

Checkpoint Checkpoint::of(TensorMap tensors, std::map<std::string, std::string> metadata) {
  auto contents = std::make_unique<Contents>();
  contents->tensors = std::move(tensors);
  contents->metadata = std::move(metadata);
  return Checkpoint(std::move(contents));
}

Checkpoint::Checkpoint(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string& Checkpoint::path() const {
  return contents_->path;
}
std::string Checkpoint::name() const {
  return contents_->path.empty() ? "the weights" : quote_path(contents_->path);
}
Checkpoint::Format Checkpoint::format() const {
  return contents_->format;
}
const TensorMap& Checkpoint::tensors() const {
  return contents_->tensors;
}
const std::map<std::string, std::string>& Checkpoint::metadata() const {
  return contents_->metadata;
}
const std::optional<BuildOptions>& Checkpoint::build() const {
  return contents_->build;
}

}  // namespace exphil::core
