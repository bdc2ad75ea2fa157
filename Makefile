# Builds the NIF, its kernels and its tests. `make help` lists the targets; README.md describes them.
#
# Variables, from the command line or the environment:
#   BUILD         where objects go (default: build)
#   CXX CXXFLAGS  compiler and its optimisation flags; a change rebuilds the affected objects
#   GROUP         how many files of a folder are compiled as one (default: 8)
#   CUDA_HOME     a CUDA toolkit, where it is not in one of the usual places; CUDA_INCLUDE is only the headers' folder,
#                 and CUDA_INCLUDE= builds without the CUDA backend
#   BUILD_CUDA    where programs and libraries go, and the few objects that differ with and without CUDA (default: BUILD),
#                 so that two such builds can share the other objects
#   JOBS          how many commands run at once (the number of cores)
BUILD ?= build
BUILD_CUDA ?= $(BUILD)
PRIV ?= priv
# -g1: line numbers for backtraces; full -g would make the build 50% slower.
CXXFLAGS ?= -O2 -g1
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14) clang-format)
ifeq ($(MAKELEVEL),0)
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
MAKEFLAGS += -j$(JOBS)
endif
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
# Without a locale Elixir warns about its file names.
ifeq ($(LC_ALL)$(LC_CTYPE)$(LANG),)
export LC_ALL := C.UTF-8
endif

# ---- locations -----------------------------------------------------------------------------------------------

# The CUDA driver and NVRTC are opened at run time; only their headers are needed here; without them only
# the host backend is built. The pip packages nvidia-cuda-runtime and nvidia-cuda-nvrtc have them in two folders.
ifeq ($(origin CUDA_INCLUDE),undefined)
CUDA_PLACES := $(addsuffix /include,$(CUDA_HOME)) /usr/local/cuda/include /usr/include $(wildcard \
  $(addsuffix /lib/python3*/site-packages/nvidia/*/include,$(VIRTUAL_ENV) /usr/local) \
  /usr/local/lib/python3*/dist-packages/nvidia/*/include)
find_header = $(firstword $(foreach d,$(CUDA_PLACES),$(if $(wildcard $(d)/$(1)),$(d))))
CUDA_INCLUDE := $(sort $(call find_header,cuda.h) $(call find_header,nvrtc.h))
endif
CUDA_FOUND := $(and $(wildcard $(CUDA_INCLUDE:%=%/cuda.h)),$(wildcard $(CUDA_INCLUDE:%=%/nvrtc.h)))
NO_CUDA := cuda.h and nvrtc.h were not found (CUDA_HOME, /usr/local/cuda, /usr/include)

# Needed for c_src/nif only, and evaluated on first use, because it starts an Erlang VM.
ERL_INCLUDE ?= $(eval ERL_INCLUDE := $$(shell erl -noshell -eval \
  'io:format("~ts/erts-~ts/include", [code:root_dir(), erlang:system_info(version)]), halt().'))$(ERL_INCLUDE)

# Catch2 3 has a library; Catch2 2 is one header.
CATCH2_LIBS := $(if $(wildcard /usr/include/catch2/catch_all.hpp /usr/local/include/catch2/catch_all.hpp),-lCatch2Main -lCatch2)

# The C header of XLA's FFI, for c_src/xla only: from JAX in $(BUILD)/venv or another of Python's usual places, from EXLA's archive,
# or from the JAX of the Python on the PATH. Evaluated on first use. Python is asked where the package is and does not import it,
# which would take seconds.
XLA_PLACES = $(wildcard $(addsuffix /lib/python3*/site-packages/jaxlib/include,$(BUILD)/venv $(VIRTUAL_ENV) /usr/local) \
  /usr/local/lib/python3*/dist-packages/jaxlib/include deps/exla/cache/xla_extension/include ../exla/cache/xla_extension/include)
JAXLIB_PLACE = python3 -c 'import importlib.util as u; print(*u.find_spec("jaxlib").submodule_search_locations)' 2>/dev/null
find_xla = $(firstword $(foreach d,$(1),$(if $(wildcard $(d)/xla/ffi/api/c_api.h),$(d))))
XLA_INCLUDE ?= $(eval XLA_INCLUDE := $$(or $$(call find_xla,$$(XLA_PLACES)),$$(call find_xla,$$(addsuffix /include,$$(shell \
  $$(JAXLIB_PLACE))))))$(XLA_INCLUDE)

# With a sanitizer g++ gives false warnings about values and loops; the ordinary build has the warnings on.
WARNINGS = $(if $(findstring -fsanitize,$(CXXFLAGS)),-w,-Wall -Wextra -Werror)
# Highway's NEON code is compiled with +crypto. Where the rest is not, g++ cannot inline it into implicit constructors.
# No such instruction is ever emitted: only intrinsics would, and none is used.
ifneq ($(findstring aarch64,$(shell $(CXX) -dumpmachine)),)
MACHINE_FLAGS := -march=armv8-a+crypto
endif
# initial-exec: each thread has its thread-local data from its start. Otherwise glibc allocates it at the first use, and ends
# the process where it has no memory.
FLAGS = $(strip -std=c++17 $(MACHINE_FLAGS)) $(CXXFLAGS) $(WARNINGS) -fPIC -ftls-model=initial-exec -fvisibility=hidden -ffp-contract=on $(DEPENDENCIES) -MP -Ic_src -I.
# What an object depends on, for make: without the system's headers. Those of Highway include the file that includes them again, and
# with it headers of this project, which would be left out too.
DEPENDENCIES = $(if $(filter $(addprefix %/,$(ALONE:.cpp=.o)),$@),-MD,-MMD)
LIBS := -lhwy -ltbb -lz -ldl -lpthread

# Every file of a folder, recursively.
sources_in = $(foreach folder,$(1),$(wildcard $(folder)/*.$(2) $(folder)/*/*.$(2) $(folder)/*/*/*.$(2)))
SOURCES := $(call sources_in,c_src/core c_src/host c_src/nif,cpp)
TESTS := $(call sources_in,$(addprefix test/c_src/,support core host kernels),cpp)
BENCHES := $(wildcard bench/host_*.cpp)
ifneq ($(CUDA_FOUND),)
FAKE_CUDA := $(wildcard test/c_src/cuda/fake_cuda.cpp)
FAKE_NVRTC := $(wildcard test/c_src/cuda/fake_nvrtc.cpp)
SOURCES += $(call sources_in,c_src/cuda,cpp)
TESTS += $(filter-out $(FAKE_CUDA) $(FAKE_NVRTC),$(call sources_in,test/c_src/cuda,cpp))
BENCHES += $(wildcard bench/gpu_*.cpp)
BENCH_LIBRARIES := $(BUILD)/bench/policy_steps.so
endif
CUDA_FLAGS := $(if $(CUDA_FOUND),-DEXPHIL_CUDA=1 $(addprefix -isystem ,$(filter-out /usr/include,$(CUDA_INCLUDE))))
XLA_SOURCES := $(call sources_in,c_src/xla,cpp)
KERNELS := $(call sources_in,kernels,cu) $(call sources_in,kernels,cuh)

FAKE_CUDA_LIBRARY := $(if $(FAKE_CUDA),$(abspath $(BUILD))/libfake_cuda.so)
FAKE_NVRTC_LIBRARY := $(if $(FAKE_NVRTC),$(abspath $(BUILD))/libfake_nvrtc.so)
SLOW_EXIT_LIBRARY := $(abspath $(BUILD))/libslow_exit.so
BENCH_PROGRAMS := $(BENCHES:bench/%.cpp=$(BUILD)/bench/%)

# ---- groups of files -----------------------------------------------------------------------------------------

# Up to GROUP files of one folder are compiled as one: what they include is read once, and what they instantiate of the C++ library
# is compiled once: `make demo` takes 225 s of CPU instead of 277. So names within the files of a folder are different, and
# GROUP=1, which compiles each file by itself, shows an #include that is missing.
GROUP ?= 8
first_files = $(wordlist 1,$(GROUP),$(1))
other_files = $(wordlist $(words x $(call first_files,$(1))),$(words $(1)),$(1))
# The objects of the groups of files $(2), of folder $(1), of which $(3) groups were before them. FILES_OF a group: its files.
groups_of = $(if $(2),$(eval FILES_OF_$(1)group_$(words x $(3)).cpp := $(call first_files,$(2)))$(1)group_$(words x $(3)).o \
  $(call groups_of,$(1),$(call other_files,$(2)),x $(3)))
in_folder = $(strip $(foreach file,$(2),$(if $(filter $(1),$(dir $(file))),$(file))))
# The objects of files $(2) below $(1). No part of a group are files that Highway compiles several times over, and the forms of the
# scan, whose parts have the same names in each.
ALONE := $(shell grep -rl --include='*.cpp' -e foreach_target.h -e '^struct Cut ' -e '^bool takes' c_src 2>/dev/null)
objects_of = $(if $(filter 1,$(GROUP)),$(2:%.cpp=$(1)/%.o),$(patsubst %.cpp,$(1)/%.o,$(filter $(ALONE),$(2))) \
  $(foreach folder,$(sort $(dir $(2))),$(call groups_of,$(1)/$(folder),$(call in_folder,$(folder),$(filter-out $(ALONE),$(2))))))

# These alone ask whether there is a CUDA backend (EXPHIL_CUDA); .ci/layers checks it.
CUDA_AWARE := $(addprefix c_src/nif/,backends.cpp info.cpp tools/copy_rates.cpp)
NIF_OBJECTS := $(CUDA_AWARE:%.cpp=$(BUILD_CUDA)/%.o) $(call objects_of,$(BUILD),$(filter-out $(CUDA_AWARE),$(filter c_src/nif/%,$(SOURCES))))
LIBRARY_OBJECTS := $(call objects_of,$(BUILD),$(filter-out c_src/nif/%,$(SOURCES)))
# The custom calls are not grouped: each reads its call by functions of the same names.
XLA_OBJECTS := $(XLA_SOURCES:%.cpp=$(BUILD_CUDA)/%.o)
# Compiled alone: files of support/ that write the seeds of fuzzing, Catch2 itself, what replaces the allocator, a file whose templates
# need its own functions before them, and the test that opens the fake libraries.
TESTS_ALONE := $(addprefix test/c_src/support/,$(addsuffix .cpp,policy safetensors_writer edifice_writer gated_policy head_policy \
  mamba3_policy shared_data main allocations ssd_case)) test/c_src/cuda/cuda_test.cpp
in_groups = $(filter test/c_src/support/% %_test.cpp,$(filter-out $(TESTS_ALONE),$(TESTS)))
GROUPED_TESTS := $(call objects_of,$(BUILD),$(in_groups))
TEST_OBJECTS := $(GROUPED_TESTS) $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out $(in_groups),$(TESTS)))

# ---- targets -------------------------------------------------------------------------------------------------

## all: build everything that a running program needs (the default)
all: native
	mix compile

## setup: install the missing Debian packages (as root), or list them
setup:
	@.ci/setup

## demo: set up, build, and play ten seconds at 60 FPS with a generated policy
demo:
	@.ci/setup --run
	@$(MAKE) --no-print-directory all
	@mix exphil.play

## test: set up, check, build, and run every test except test_variants; prints what it leaves out, and why
test: setup
	@$(MAKE) --no-print-directory check $(BUILD_CUDA)/c_src_tests native $(FAKE_CUDA_LIBRARY) $(SLOW_EXIT_LIBRARY)
	@$(MAKE) --no-print-directory run_ex test_c
	@$(MAKE) --no-print-directory test_latency

## test_c: the C++ tests (Catch2), in four processes
test_c: $(if $(CUDA_FOUND),test_c_emulated test_c_heads test_c_teams) test_c_others
	@$(if $(CUDA_FOUND),,echo 'skipped: the C++ tests of the CUDA backend: $(NO_CUDA)')

## test_without_cuda: build without CUDA headers, as most users do, and run the tests that this changes; other objects are those of $(BUILD)
# The objects of the C++ tests are those of test_c: it is enough that they can be linked without the CUDA backend, and start.
test_without_cuda:
	@$(MAKE) --no-print-directory CUDA_INCLUDE= BUILD_CUDA=$(BUILD)/without_cuda $(BUILD)/without_cuda/c_src_tests test_ex EXCLUDE='--exclude either'
	$(BUILD)/without_cuda/c_src_tests '[tensor],[precision]'
# Both install their libraries in $(PRIV).
ifneq ($(filter test_without_cuda,$(MAKECMDGOALS)),)
test_xla: | test_without_cuda
endif

## test_variants: compile every variant of every kernel for sm_90, and run the longest tests of kernels without a GPU (minutes; the ordinary tests compile each file once, for four architectures)
test_variants: test_variants_faults test_variants_gradient test_variants_compiled

# The Elixir tests, and those of XLA behind them, take longest where all have a share of a core, and most of them are one process
# behind another: what keeps every core busy runs behind them. Beside other programs it still gets two thirds of a share so; with 5 it was one.
BEHIND := nice -n 2

# Each is a process that runs the test cases of its tags.
test_c_emulated: TAGS = [emulated]~[teams]~[heads]~[gated]~[.]
test_c_heads: TAGS = [emulated][heads]
test_c_teams: TAGS = [emulated][teams],[emulated][gated]
test_c_others: TAGS = ~[emulated]~[.]
test_variants_compiled: TAGS = [variants]~[emulated]
test_variants_faults: TAGS = [variants][emulated]~[scan_grad]
test_variants_gradient: TAGS = [variants][emulated][scan_grad]
test_c_emulated test_c_heads test_c_teams test_c_others test_variants_compiled test_variants_faults test_variants_gradient: $(BUILD_CUDA)/c_src_tests
	$(BEHIND) $(BUILD_CUDA)/c_src_tests '$(TAGS)'

## test_ex: the Elixir tests (ExUnit)
test_ex: native $(FAKE_CUDA_LIBRARY) $(SLOW_EXIT_LIBRARY)
	@$(MAKE) --no-print-directory run_ex
# Where all that they need is built. What has nothing to wait for is started first.
run_ex:
	mix test $(EXCLUDE)

## test_latency: print the latencies of scan, step, window and act, and judge their ratios where the machine is not busy
test_latency: native
	mix test --only latency

JAX := jax==0.10.2
## test_xla: the XLA handlers under JAX, which a virtual environment in $(BUILD)/venv gets from PyPI
test_xla: jax
	$(BUILD)/venv/bin/python -m unittest discover -s test/xla

## jax: the virtual environment of test_xla, and the library with the XLA handlers
jax: $(BUILD)/venv/jax
	@$(MAKE) --no-print-directory native

$(BUILD)/venv/jax:
	@mkdir -p $(@D)
	@.ci/setup --xla
	python3 -m venv $(BUILD)/venv
	$(BUILD)/venv/bin/pip install --quiet --no-compile --disable-pip-version-check $(JAX) flatbuffers 'setuptools>=70.1'
	@touch $@

## sanitize: the C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer, leaks checked; those with threads with ThreadSanitizer
SANITIZE_FLAGS := -O1 -g1 -fno-omit-frame-pointer
# Without the recorded matches, whose thousands of frames take minutes and run the same code as the small policies.
NOT_RECORDED := '~[variants]~[.]~[melee]~[exphil]'
sanitize: sanitize_memory sanitize_threads
sanitize_memory:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan $(BUILD)/asan/c_src_tests \
	  CXXFLAGS='$(SANITIZE_FLAGS) -fsanitize=address,undefined -fno-sanitize-recover=undefined'
	ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 LSAN_OPTIONS=suppressions=test/sanitizers/leaks.txt \
	  $(BUILD)/asan/c_src_tests $(NOT_RECORDED)
# Only what these tests need: the CUDA backend's threads are those of core/, and half of the build.
THREADED_TESTS = $(call sources_in,test/c_src/support,cpp) $(addprefix test/c_src/core/session/,session_test.cpp session_group_test.cpp repeated_lists_test.cpp late_frame_test.cpp gatherer_test.cpp gatherer_beside_test.cpp replicas_test.cpp) test/c_src/host/storm_test.cpp \
  $(addprefix test/c_src/core/work/,parallel_test.cpp reaper_test.cpp ticker_test.cpp handover_mutex_test.cpp push_list_test.cpp background_priority_test.cpp polling_test.cpp) \
  $(addprefix test/c_src/,core/buffer_pool_test.cpp host/simd/team_test.cpp host/policy/pace_test.cpp host/policy/window_ahead_test.cpp host/policy/prefill_ahead_test.cpp)
sanitize_threads:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/tsan CUDA_INCLUDE= TESTS='$(THREADED_TESTS)' $(BUILD)/tsan/c_src_tests \
	  CXXFLAGS='$(SANITIZE_FLAGS) -fsanitize=thread'
	TSAN_OPTIONS=allocator_may_return_null=1:suppressions=test/sanitizers/threads.txt $(BUILD)/tsan/c_src_tests

## test_arm: the CPU backend's tests, compiled for 64-bit ARM and run under qemu (minutes; needs Debian's arm64 packages)
ARM_TESTS = $(call sources_in,test/c_src/support test/c_src/host,cpp)
test_arm:
	@command -v aarch64-linux-gnu-g++ qemu-aarch64 >/dev/null && ls /usr/lib/aarch64-linux-gnu/libhwy.so >/dev/null 2>&1 || \
	  { echo 'test_arm: docs/architecture.md (Tests and tools) names the packages that it needs' >&2; exit 1; }
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/arm CUDA_INCLUDE= TESTS='$(ARM_TESTS)' $(BUILD)/arm/c_src_tests \
	  CXX='$(if $(findstring ccache,$(CXX)),ccache )aarch64-linux-gnu-g++' CXXFLAGS='-O1 -g1'
	qemu-aarch64 $(BUILD)/arm/c_src_tests $(NOT_RECORDED)

## fuzz: run clang's libFuzzer on every reader of untrusted bytes, SECONDS=n for each target (default 60)
SECONDS ?= 60
CLANGXX ?= $(if $(findstring ccache,$(CXX)),ccache )clang++
fuzz:
	@.ci/setup --fuzz
	@$(BEHIND) $(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CXX='$(CLANGXX)' CUDA_INCLUDE= fuzz_programs CXXFLAGS=$(strip \
	  '-O1 -g1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined')
	@.ci/fuzz $(BUILD)/fuzz $(SECONDS) $(FUZZ_TARGETS)

## lint: check the format of every source file, with the versions of Debian 12 only, and what `make test` checks before its tests
lint: lint_c lint_ex check

# Of what does not run: the directions of includes, and an Elixir build without warnings, which the tests then use.
check: check_layers check_ex
check_layers:
	.ci/layers
check_ex: native
	MIX_ENV=test mix compile --warnings-as-errors --force

CPP_FOLDERS = $(wildcard c_src/* test/c_src/*) test/fuzz bench
CPP_FILES = $(call sources_in,$(CPP_FOLDERS),cpp) $(call sources_in,$(CPP_FOLDERS),hpp) $(KERNELS)
# Other versions format some lines differently.
lint_c:
	@case "$$($(CLANG_FORMAT) --version 2>/dev/null)" in \
	  *"version 14."*) echo '$(CLANG_FORMAT) --dry-run -Werror'; printf '%s\n' $(CPP_FILES) | xargs -P "$$(getconf _NPROCESSORS_ONLN)" -n 50 $(CLANG_FORMAT) --dry-run -Werror ;; \
	  *) echo 'lint: the C++ format was not checked, because clang-format 14 is missing' ;; esac

lint_ex:
	@case "$$(mix --version 2>/dev/null)" in \
	  *"Mix 1.14."*) echo 'mix format --check-formatted'; mix format --check-formatted ;; \
	  *) echo 'lint: the Elixir format was not checked, because this is not Elixir 1.14' ;; esac

## format: format every source file
format:
	$(CLANG_FORMAT) -i $(CPP_FILES)
	mix format

## package: pack the built libraries, what they need, and the kernels for machines without a compiler, in PACKAGES=FOLDER (default: $(BUILD)/packages)
PACKAGES ?= $(BUILD)/packages
package: native
	@CXX='$(CXX)' .ci/package $(PRIV) $(PACKAGES)
# What a package has besides libraries and kernels.
PACKAGED := $(addprefix $(PRIV)/,manifest source lib licenses)

## checksums: write checksum.exs and packages.url, for a package on Hex, of the packages in PACKAGES, which URL=PLACE has
checksums:
	@.ci/publish $(PACKAGES) $(URL)

## badges: write or take away the links to Livebook in README.md and the guides, as mix.exs declares this project's address
badges:
	@.ci/badges

## bench: build the benchmark programs into $(BUILD)/bench
bench: $(BENCH_PROGRAMS) $(BENCH_LIBRARIES)

## clean: remove what was built
clean: clean_native
	rm -rf _build tmp

clean_native:
	rm -rf $(BUILD) $(PRIV)/exphil_native.so $(PRIV)/exphil_native_xla.so $(PRIV)/kernels $(PACKAGED)

# For `mix exphil.doctor`: where the build finds the CUDA headers, if it does.
cuda_headers:
	@echo $(if $(CUDA_FOUND),$(CUDA_INCLUDE))

# Where the build finds XLA's header, if it does.
xla_headers:
	@echo $(XLA_INCLUDE)

help:
	@sed -n 's/^## //p' Makefile

# ---- the NIF and its kernels, built by `mix compile` ---------------------------------------------------------

INSTALLED_KERNELS := $(KERNELS:kernels/%=$(PRIV)/kernels/%)
.SECONDEXPANSION:
# Those that take longest are compiled first, so that the other cores do not wait for one of them at the end: the library needs
# them first. (As what `native` needs first they were first with make 4.3 alone.)
LONGEST := $(wildcard $(addprefix c_src/host/,simd/matmul.cpp associative/rows.cpp recurrence/channels.cpp recurrence/gradient.cpp))
native: $(PRIV)/exphil_native.so $(INSTALLED_KERNELS) $$(if $$(XLA_INCLUDE),$(PRIV)/exphil_native_xla.so)
	@rm -f $(filter-out $(INSTALLED_KERNELS),$(call sources_in,$(PRIV)/kernels,cu) $(call sources_in,$(PRIV)/kernels,cuh))
	@rm -rf $(PACKAGED)

# Installed by rename: a VM that has loaded the old library keeps it. Compared by content: with and without CUDA there are two
# libraries, and the older one may be the one to install.
$(PRIV)/%.so: $(BUILD_CUDA)/%.so force
	@cmp -s $< $@ || { mkdir -p $(PRIV) && cp $< $@.$$$$ && mv $@.$$$$ $@; }

$(PRIV)/kernels/%: kernels/%
	@mkdir -p $(@D) && cp $< $@.$$$$ && mv $@.$$$$ $@

# Each library exports its own entry points alone (exports.map). A symbol of the C++ library that it exported too could be
# replaced by that of another libstdc++ in the process, such as the one that JAX brings.
# Highway and TBB are those of $(PRIV)/lib where a package brought them.
BUNDLED := -Wl,-rpath,'$$ORIGIN/lib'
$(BUILD_CUDA)/exphil_native.so: $(LONGEST:%.cpp=$(BUILD)/%.o) $(NIF_OBJECTS) $(LIBRARY_OBJECTS)
	@echo "LD   $@"
	@$(CXX) -shared -Wl,--version-script=c_src/nif/exports.map $(BUNDLED) $(filter %.o,$^) -o $@ $(LIBS)
	@$(if $(CUDA_FOUND),,echo '$(NO_CUDA): built without the CUDA backend')

# Custom calls for XLA. A separate library, because JAX has no BEAM.
$(BUILD_CUDA)/exphil_native_xla.so: $(XLA_OBJECTS) $(LIBRARY_OBJECTS)
	@echo "LD   $@"
	@$(CXX) -shared -Wl,--version-script=c_src/xla/exports.map $(BUNDLED) $(filter %.o,$^) -o $@ $(LIBS)

# ---- objects, programs ---------------------------------------------------------------------------------------

NIF_FLAGS = -isystem $(ERL_INCLUDE)
$(BUILD)/c_src/nif/%.o: EXTRA_FLAGS = $(NIF_FLAGS)
$(CUDA_AWARE:%.cpp=$(BUILD_CUDA)/%.o): EXTRA_FLAGS = $(NIF_FLAGS) $(CUDA_FLAGS)
$(BUILD_CUDA)/c_src/xla/%.o: EXTRA_FLAGS = -isystem $(XLA_INCLUDE) $(CUDA_FLAGS)
$(BUILD)/c_src/cuda/%.o $(BUILD)/bench/%.o: EXTRA_FLAGS = $(CUDA_FLAGS)
# -O1: the tests themselves need no more, and the build of all takes a minute less. Some compilers define _FORTIFY_SOURCE,
# with which the C library warns of results that a test does not look at.
TEST_FLAGS := -O1 -U_FORTIFY_SOURCE -Itest/c_src
$(BUILD)/test/%.o: EXTRA_FLAGS = $(TEST_FLAGS)
$(BUILD)/test/c_src/cuda/%.o: EXTRA_FLAGS = $(TEST_FLAGS) $(CUDA_FLAGS)
# The headers of the standard library are precompiled, because they are a quarter of what it takes to compile a file, and Catch2 2,
# one header of 18,000 lines, half of what a small test takes. Not for ccache, which would keep nothing of what
# includes them.
PRECOMPILED := $(if $(findstring ccache,$(CXX))$(findstring clang,$(CXX)),,yes)
STANDARD_HEADER := $(PRECOMPILED:yes=$(BUILD)/standard.hpp)
STANDARD_FLAGS = $(if $(filter $(BUILD)/c_src/%,$@),$(STANDARD_HEADER:%=-include %))
CATCH_HEADER := $(PRECOMPILED:yes=$(BUILD)/test/catch.hpp)
$(GROUPED_TESTS): EXTRA_FLAGS += $(CATCH_HEADER:%=-include %)
# Only the two files that open the fake libraries have their places, which differ from one checkout to another.
$(BUILD)/test/c_src/cuda/cuda_test.o $(BUILD)/test/c_src/cuda/emulated_gpu.o: \
  EXTRA_FLAGS += -DEXPHIL_FAKE_CUDA='"$(FAKE_CUDA_LIBRARY)"' -DEXPHIL_FAKE_NVRTC='"$(FAKE_NVRTC_LIBRARY)"' -DEXPHIL_SLOW_EXIT='"$(SLOW_EXIT_LIBRARY)"'

# [37/112]: the files that are compiled now, of those that were out of date when the first was. They are counted then, by a make that
# builds nothing (COUNTING), so that a build with nothing to compile does not wait for it.
OUT_OF_DATE = $(if $(COUNTING),,$(eval OUT_OF_DATE := $$(shell MAKEFLAGS= $$(MAKE) -n --no-print-directory COUNTING=1 \
  $$(MAKEOVERRIDES) $$(MAKECMDGOALS) 2>/dev/null | grep -c 'CXX  '))$(OUT_OF_DATE))
# g++ takes the files of a group for headers, in which types of unnamed namespaces would be suspect.
GROUP_FLAGS = $(if $(filter group_%.o,$(@F)),$(if $(findstring clang,$(CXX)),,-Wno-subobject-linkage))
# A group is named by its folder and its files.
compiled = $(if $(FILES_OF_$(1)),$(patsubst %/,%,$(dir $(firstword $(FILES_OF_$(1))))): $(basename $(notdir $(FILES_OF_$(1)))),$(1))
progress = $(eval COMPILED += x)[$(words $(COMPILED))/$(OUT_OF_DATE)] CXX  $(call compiled,$<)
define compile
	@mkdir -p $(@D)
	@echo "$(progress)"
	@$(CXX) $(FLAGS) $(STANDARD_FLAGS) $(EXTRA_FLAGS) $(GROUP_FLAGS) -c $< -o $@
endef
$(BUILD)/%.o: %.cpp $(BUILD)/flags
	$(compile)
$(BUILD)/%.o: $(BUILD)/%.cpp $(BUILD)/flags
	$(compile)
ifneq ($(BUILD_CUDA),$(BUILD))
$(BUILD_CUDA)/%.o: %.cpp $(BUILD)/flags
	$(compile)
$(BUILD_CUDA)/%.o: $(BUILD_CUDA)/%.cpp $(BUILD)/flags
	$(compile)
endif

# What includes the files of a group, rewritten only when the list changes.
GROUPS := $(patsubst %.o,%.cpp,$(filter %.o,$(foreach object,$(NIF_OBJECTS) $(LIBRARY_OBJECTS) $(TEST_OBJECTS),$(if $(FILES_OF_$(object:%.o=%.cpp)),$(object)))))
$(GROUPS): $(if $(COUNTING),,force)
	@printf '#include "%s"\n' $(FILES_OF_$@) | cmp -s - $@ || { mkdir -p $(@D) && printf '#include "%s"\n' $(FILES_OF_$@) > $@; }

# Rewritten only when what they hold changes: the compiler and its flags, on which every object depends; where CUDA's headers
# are, for what includes them; and whether there are any, for what asks that or is linked from other objects without them; and how
# kernels are compiled for the emulated grid.
$(BUILD)/flags: HELD = $(CXX) $(FLAGS)
$(BUILD)/cuda_flags $(BUILD_CUDA)/cuda_found: HELD = $(CUDA_FLAGS)
$(BUILD)/emulation_flags: HELD = $(EMULATE_KERNEL)
$(BUILD)/flags $(BUILD)/cuda_flags $(BUILD_CUDA)/cuda_found $(BUILD)/emulation_flags: $(if $(COUNTING),,force)
	@mkdir -p $(@D)
	@printf '%s\n' '$(HELD)' | cmp -s - $@ || printf '%s\n' '$(HELD)' > $@

$(filter $(BUILD)/c_src/cuda/% $(BUILD)/test/c_src/cuda/%,$(LIBRARY_OBJECTS) $(TEST_OBJECTS)) $(BENCHES:%.cpp=$(BUILD)/%.o) \
  $(FAKE_CUDA_LIBRARY) $(FAKE_NVRTC_LIBRARY): $(BUILD)/cuda_flags
$(CUDA_AWARE:%.cpp=$(BUILD_CUDA)/%.o) $(XLA_OBJECTS) $(BUILD_CUDA)/exphil_native.so $(BUILD_CUDA)/exphil_native_xla.so $(BUILD_CUDA)/c_src_tests: $(BUILD_CUDA)/cuda_found

$(BUILD_CUDA)/c_src_tests: $(TEST_OBJECTS) $(LIBRARY_OBJECTS) | $(FAKE_CUDA_LIBRARY) $(FAKE_NVRTC_LIBRARY) $(SLOW_EXIT_LIBRARY)
	@echo "LD   $@"
	@$(CXX) $(CXXFLAGS) $(filter %.o,$^) -o $@ $(CATCH2_LIBS) $(LIBS)

$(filter $(BUILD)/c_src/%,$(NIF_OBJECTS) $(LIBRARY_OBJECTS) $(XLA_OBJECTS)): $(STANDARD_HEADER:%=%.gch)
# Those that many files include, themselves or through core/text.hpp.
STANDARD_NAMES := algorithm array atomic chrono cmath condition_variable cstdint cstring functional limits map memory mutex optional set \
  sstream stdexcept string string_view thread tuple type_traits utility variant vector
$(BUILD)/standard.hpp.gch: $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "PCH  $(@:.gch=)"
	@printf '#include <%s>\n' $(STANDARD_NAMES) > $(@:.gch=)
	@$(CXX) $(FLAGS) -x c++-header $(@:.gch=) -o $@

$(GROUPED_TESTS): $(CATCH_HEADER:%=%.gch)
$(BUILD)/test/catch.hpp.gch: test/c_src/support/catch.hpp $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "$(progress)"
	@echo '#include "support/catch.hpp"' > $(@:.gch=)
	@$(CXX) $(FLAGS) $(TEST_FLAGS) -x c++-header $(@:.gch=) -o $@

# The fuzz targets: each a program over core alone, and one that writes their seeds.
FUZZ_TARGETS := safetensors policy layer state scan
CORE_OBJECTS := $(filter-out $(BUILD)/c_src/core/training/%,$(filter $(BUILD)/c_src/core/%,$(LIBRARY_OBJECTS)))
fuzz_programs: $(FUZZ_TARGETS:%=$(BUILD)/%) $(BUILD)/seeds

$(BUILD)/test/fuzz/%.o: EXTRA_FLAGS = -Itest/c_src -Itest/fuzz
SEEDS := $(BUILD)/test/fuzz/seeds.o $(addprefix $(BUILD)/test/c_src/support/,policy.o safetensors_writer.o edifice_writer.o gated_policy.o \
  head_policy.o mamba3_policy.o shared_data.o)
# What writes the seeds is not what is fuzzed. To compile it takes 9 s of CPU instead of 21.
ifneq ($(findstring fuzzer,$(CXXFLAGS)),)
$(SEEDS): EXTRA_FLAGS += -O0 -fno-sanitize=all
endif
$(BUILD)/seeds: $(SEEDS) $(CORE_OBJECTS)
	@echo "LD   $@"
	@$(CXX) $(CXXFLAGS) $^ -o $@ $(LIBS)

$(FUZZ_TARGETS:%=$(BUILD)/%): $(BUILD)/%: $(BUILD)/test/fuzz/%.o $(CORE_OBJECTS) \
  $(addprefix $(BUILD)/test/fuzz/,guards.o safetensors_mutator.o term_mutator.o term.o)
	@echo "LD   $@"
	@$(CXX) $(subst fuzzer-no-link,fuzzer,$(CXXFLAGS)) $^ -o $@ $(LIBS)

$(FAKE_CUDA_LIBRARY): $(FAKE_CUDA) $(BUILD)/flags
	@echo "LD   $@"
	@$(CXX) $(FLAGS) $(CUDA_FLAGS) -Itest/c_src -fvisibility=default -MF $(BUILD)/fake_cuda.d -shared $< -o $@

# Of C alone: it is loaded into every process that a VM starts.
$(SLOW_EXIT_LIBRARY): test/support/slow_exit.cpp
	@mkdir -p $(@D)
	@echo "LD   $@"
	@$(filter-out ccache,$(CXX)) -std=c++17 -O1 $(WARNINGS) -fPIC -shared -nostdlib $< -o $@ -lc

# The fake NVRTC, which compiles kernels for the emulated grid when the tests run. The names of CUDA in front of each kernel are
# precompiled, because to read them takes four times as long as to compile a kernel, and there are hundreds.
EMULATION := $(abspath $(BUILD))/emulation/cuda_names.hpp
# A fused multiply and add is one instruction where the processor has it, and a call of the C library elsewhere; g++ fuses no others.
FUSED = -ffp-contract=off $(if $(shell grep -sowm1 fma /proc/cpuinfo),-mfma)
EMULATE = $(filter-out ccache,$(CXX)) -std=c++17 -O1 $(FUSED) -U_FORTIFY_SOURCE -fPIC -fvisibility=hidden -w -I$(CURDIR)/c_src -I$(CURDIR)/test/c_src
$(EMULATION).gch: test/c_src/support/cuda_names.hpp $(BUILD)/emulation_flags
	@mkdir -p $(@D)
	@echo "$(progress)"
	@echo '#include "support/cuda_names.hpp"' > $(EMULATION)
	@$(EMULATE) -MMD -MP -MF $(BUILD)/emulation.d -MT $@ -x c++-header $(EMULATION) -o $@

EMULATED_GRID := $(abspath $(BUILD))/emulation/grid.o
$(EMULATED_GRID): test/c_src/emulation/grid.cpp $(BUILD)/emulation_flags
	@mkdir -p $(@D)
	@echo "$(progress)"
	@$(EMULATE) -MMD -MP -MF $(BUILD)/emulated_grid.d -MT $@ -c $< -o $@

# A kernel needs the libraries of C alone, and is linked in a third of the time without the others.
EMULATE_KERNEL = $(EMULATE) -include $(EMULATION) -include support/cuda_blocks.hpp -shared -nostdlib -lm -lc
$(FAKE_NVRTC_LIBRARY): $(FAKE_NVRTC) $(EMULATED_GRID) $(BUILD)/flags $(BUILD)/emulation_flags | $(EMULATION).gch
	@echo "LD   $@"
	@$(CXX) $(FLAGS) $(CUDA_FLAGS) -Itest/c_src -fvisibility=default -DEXPHIL_TEST_COMPILER='"$(EMULATE_KERNEL)"' -DEXPHIL_TEST_SOURCES='"$(CURDIR)"' \
	  -MF $(BUILD)/fake_nvrtc.d -shared $< $(EMULATED_GRID) -o $@

$(BUILD)/bench/%.so: $(BUILD)/bench/%.o $(LIBRARY_OBJECTS)
	@echo "LD   $@"
	@$(CXX) -shared -Wl,--version-script=c_src/xla/exports.map $^ -o $@ $(LIBS)

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(LIBRARY_OBJECTS)
	@echo "LD   $@"
	@$(CXX) $^ -o $@ $(LIBS)

-include $(wildcard $(BUILD)/test/fuzz/*.d) $(NIF_OBJECTS:.o=.d) $(LIBRARY_OBJECTS:.o=.d) $(XLA_OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d) $(BENCHES:%.cpp=$(BUILD)/%.d) $(BENCH_LIBRARIES:.so=.d) $(BUILD)/fake_cuda.d $(BUILD)/fake_nvrtc.d $(BUILD)/emulation.d $(BUILD)/emulated_grid.d
.SECONDARY:
.PHONY: all setup package checksums badges demo test test_without_cuda test_xla jax sanitize sanitize_memory sanitize_threads test_arm fuzz fuzz_programs run_ex test_c test_c_emulated test_c_heads test_c_teams test_c_others test_variants test_variants_compiled test_variants_faults test_variants_gradient test_ex test_latency lint lint_c lint_ex check check_layers check_ex format bench clean clean_native cuda_headers xla_headers help native force
