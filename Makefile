# Builds the NIF and its tests; see README.md. `make help` lists the targets.
BUILD ?= build
CXX ?= g++
CXXSTD := -std=c++17
WARNINGS := -Wall -Wextra -Werror
CXXFLAGS ?= -O2 -g
ERL_INCLUDE ?= $(shell erl -noshell -eval 'io:format("~ts/erts-~ts/include", [code:root_dir(), erlang:system_info(version)]), halt().')
CUDA_INCLUDE ?= $(firstword $(foreach d,$(CUDA_HOME)/include /usr/local/cuda/include /usr/include,$(if $(wildcard $(d)/cuda.h),$(if $(wildcard $(d)/nvrtc.h),$(d)))))
FLAGS := $(CXXSTD) $(CXXFLAGS) $(WARNINGS) -fPIC -fvisibility=hidden -ffp-contract=on -MMD -MP -Ic_src -I.

SOURCES := $(wildcard c_src/core/*.cpp c_src/host/*.cpp c_src/nif/*.cpp)
LIBS := -lhwy -ltbb -ldl -lpthread
ifneq ($(CUDA_INCLUDE),)
SOURCES += $(wildcard c_src/cuda/*.cpp)
FLAGS += -DEXPHIL_CUDA=1 -isystem $(CUDA_INCLUDE)
endif
OBJECTS := $(SOURCES:%.cpp=$(BUILD)/%.o)
LIBRARY_OBJECTS := $(filter-out $(BUILD)/c_src/nif/%,$(OBJECTS))
TESTS := $(wildcard test/c_src/core/*.cpp test/c_src/host/*.cpp test/c_src/support/*.cpp)
ifneq ($(CUDA_INCLUDE),)
TESTS += $(wildcard test/c_src/cuda/*.cpp)
endif
TEST_OBJECTS := $(TESTS:%.cpp=$(BUILD)/%.o)

all: priv/exphil_native.so kernels
kernels:
	@mkdir -p priv/kernels && cp -u kernels/* priv/kernels/

priv/exphil_native.so: $(OBJECTS)
	@mkdir -p priv
	$(CXX) -shared $(OBJECTS) -o $@ $(LIBS)

$(BUILD)/c_src/nif/%.o: FLAGS += -isystem $(ERL_INCLUDE)
$(BUILD)/test/%.o: FLAGS += -Itest/c_src
$(BUILD)/%.o: %.cpp
	@mkdir -p $(dir $@)
	$(CXX) $(FLAGS) -c $< -o $@

$(BUILD)/c_src_tests: $(TEST_OBJECTS) $(LIBRARY_OBJECTS)
	$(CXX) $^ -o $@ $(LIBS)

test_c: $(BUILD)/c_src_tests
	$(BUILD)/c_src_tests

-include $(OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d)
.PHONY: all kernels test_c
