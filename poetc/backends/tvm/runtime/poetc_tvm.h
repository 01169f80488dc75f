/* Runs programs that `poetc --emit=tvm` wrote, in C++ with TVM's runtime.
 *
 *     poetc::Program program("model.so", &store);
 *     program.argument(0)...   parameters: write once
 *     program.argument(6)...   inputs: write before each step
 *     program.step();
 *     program.result(0)...
 *
 * Pages go to a page store of poetc's C runtime (poetc_store.h), with the same checks. What fails
 * throws tvm::ffi::Error.
 */
#ifndef POETC_TVM_H
#define POETC_TVM_H

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "poetc_image.h"
#include "poetc_store.h"

namespace poetc {

/* What a program calls to move pages, as `store` of its step. */
class Pager {
public:
    explicit Pager(poetc_store *store) : store_(store) {}

    void page_out(int64_t offset, int64_t kind, const DLTensor *tensor)
    {
        const Place place = at(offset, kind);
        check(poetc_page_out_tagged(store_, place.offset, data(tensor), bytes(tensor), place.tag),
              "page-out");
    }

    void page_in(int64_t offset, int64_t kind, const DLTensor *tensor)
    {
        const Place place = at(offset, kind);
        check(poetc_page_in_tagged(store_, place.offset, data(tensor), bytes(tensor), place.tag),
              "page-in");
    }

    /* Before each step: its tag is that of its arguments, which are added next. */
    void begin() { inputs_ = 0; }

    void add_argument(const void *data, size_t bytes)
    {
        inputs_ = poetc_tag_bytes(inputs_, data, static_cast<uint32_t>(bytes));
    }

    void image_open(int64_t layout_id, int64_t unit_bytes, int64_t bank_bytes, int64_t program_id)
    {
        layout_id_ = static_cast<uint32_t>(layout_id);
        unit_bytes_ = static_cast<uint32_t>(unit_bytes);
        bank_bytes_ = static_cast<uint32_t>(bank_bytes);
        check(poetc_image_open(store_, layout_id_, unit_bytes_, &state_), "image");
        const uint32_t tag = poetc_tag_word(static_cast<uint32_t>(program_id), inputs_);
        state_.new_tag = poetc_tag_word(tag, state_.sequence);
    }

    void image_commit()
    {
        check(poetc_image_commit(store_, layout_id_, unit_bytes_, &state_), "commit");
    }

private:
    /* As in stores.py: pages without a tag, those of old and new values of parameters, and from
     * OWN on those of the step.
     */
    enum Kind { PAGE = 0, OLD = 1, NEW = 2, OWN = 3 };

    struct Place {
        uint32_t offset;
        uint32_t tag;
    };

    Place at(int64_t offset, int64_t kind) const
    {
        if (store_ == nullptr) {
            check(POETC_NO_STORE, "page");
        }
        if (kind == PAGE) {
            return {static_cast<uint32_t>(offset), 0};
        }
        if (kind >= OWN) {
            return {static_cast<uint32_t>(offset), state_.new_tag + static_cast<uint32_t>(kind)};
        }
        const uint32_t sequence = state_.sequence + (kind == NEW ? 1u : 0u);
        return {static_cast<uint32_t>(offset) + (sequence & 1u) * bank_bytes_,
                kind == NEW ? state_.new_tag : state_.old_tag};
    }

    static uint32_t bytes(const DLTensor *tensor)
    {
        uint64_t size = tensor->dtype.bits / 8u;
        for (int i = 0; i < tensor->ndim; ++i) {
            size *= static_cast<uint64_t>(tensor->shape[i]);
        }
        return static_cast<uint32_t>(size);
    }

    static void *data(const DLTensor *tensor)
    {
        return static_cast<uint8_t *>(tensor->data) + tensor->byte_offset;
    }

    static void check(poetc_status status, const char *what)
    {
        if (status != POETC_OK) {
            TVM_FFI_THROW(RuntimeError) << what << ": " << poetc_status_text(status);
        }
    }

    poetc_store *store_;
    uint32_t layout_id_ = 0, unit_bytes_ = 0, bank_bytes_ = 0;
    uint32_t inputs_ = 0; /* a hash of all arguments in RAM */
    poetc_state state_ = {0, 0, 0};
};

/* Where an argument or result is; `memory` is null for what is on storage. */
struct Place {
    std::string name;
    uint8_t *memory = nullptr;
    size_t bytes = 0;
    bool is_param = false;
};

/* A program with its arena. One thread at a time may use it. */
class Program {
public:
    /* `store` may be null if the program does not page; it must outlive the program. */
    Program(const std::string &path, poetc_store *store) : pager_(store)
    {
        using namespace tvm::ffi;
        register_functions();
        /* A name without a directory would be looked for among the libraries of the system. */
        const bool bare = path.find('/') == std::string::npos;
        const Module library = Module::LoadFromFile(bare ? "./" + path : path);
        const Optional<Function> load = library->GetFunction("vm_load_executable");
        if (!load.has_value()) {
            TVM_FFI_THROW(ValueError) << path << " is no program for TVM's virtual machine";
        }
        machine_ = (*load)().cast<Module>();
        const int cpu = kDLCPU, pooled = 2;
        function("vm_initialization")(cpu, 0, pooled);
        describe(function("describe")().cast<String>());
        step_ = function("step");
    }

    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;

    size_t arena_bytes() const { return arena_bytes_; }
    size_t storage_bytes() const { return storage_bytes_; }
    size_t arguments() const { return arguments_.size(); }
    size_t results() const { return results_.size(); }
    const Place &argument(size_t i) const { return arguments_.at(i); }
    const Place &result(size_t i) const { return results_.at(i); }

    /* One step. After a failure the arena is to be filled anew, parameters included. */
    void step()
    {
        pager_.begin();
        for (const Place &place : arguments_) {
            if (place.memory != nullptr) {
                pager_.add_argument(place.memory, place.bytes);
            }
        }
        std::vector<tvm::ffi::AnyView> operands(parameters_.begin(), parameters_.end());
        tvm::ffi::Any nothing;
        step_.CallPacked(operands.data(), static_cast<int32_t>(operands.size()), &nothing);
    }

private:
    /* Memory that begins where TVM wants tensors to begin. */
    struct Memory {
        void AllocData(DLTensor *tensor, size_t bytes)
        {
            tensor->data = std::aligned_alloc(64, (bytes + 64u) / 64u * 64u);
            if (tensor->data == nullptr) {
                TVM_FFI_THROW(RuntimeError) << "no memory for " << bytes << " bytes";
            }
        }
        void FreeData(DLTensor *tensor) { std::free(tensor->data); }
    };

    struct Bytes {
        size_t size;
        void AllocData(DLTensor *tensor) { Memory().AllocData(tensor, size); }
        void FreeData(DLTensor *tensor) { Memory().FreeData(tensor); }
    };

    static tvm::ffi::Tensor tensor(int64_t elements, DLDataType dtype)
    {
        const size_t bytes = static_cast<size_t>(elements) * dtype.bits / 8u;
        return tvm::ffi::Tensor::FromNDAlloc(Bytes{bytes}, tvm::ffi::Shape({elements}), dtype,
                                             DLDevice{kDLCPU, 0});
    }

    tvm::ffi::Function function(const char *name)
    {
        const tvm::ffi::Optional<tvm::ffi::Function> found = (*machine_)->GetFunction(name);
        if (!found.has_value()) {
            TVM_FFI_THROW(ValueError) << "not a program of poetc: it has no function " << name;
        }
        return *found;
    }

    static void register_functions()
    {
        using tvm::ffi::Function;
        Function::SetGlobal(
            "poetc.page_out",
            Function::FromTyped([](void *pager, int64_t offset, int64_t kind, DLTensor *tensor) {
                static_cast<Pager *>(pager)->page_out(offset, kind, tensor);
            }),
            true);
        Function::SetGlobal(
            "poetc.page_in",
            Function::FromTyped([](void *pager, int64_t offset, int64_t kind, DLTensor *tensor) {
                static_cast<Pager *>(pager)->page_in(offset, kind, tensor);
            }),
            true);
        Function::SetGlobal(
            "poetc.image_open",
            Function::FromTyped([](void *pager, int64_t layout_id, int64_t unit, int64_t bank,
                                   int64_t program_id) {
                static_cast<Pager *>(pager)->image_open(layout_id, unit, bank, program_id);
            }),
            true);
        Function::SetGlobal("poetc.image_commit", Function::FromTyped([](void *pager) {
                                static_cast<Pager *>(pager)->image_commit();
                            }),
                            true);
    }

    void describe(const tvm::ffi::String &text)
    {
        using namespace tvm::ffi;
        const json::Object program = json::Parse(text).cast<json::Object>();
        arena_bytes_ = static_cast<size_t>(number(program, "arena_bytes"));
        storage_bytes_ = static_cast<size_t>(number(program, "storage_bytes"));
        const Tensor arena = tensor(number(program, "arena_bytes"), DLDataType{kDLUInt, 8, 1});
        parameters_.push_back(arena);
        parameters_.push_back(static_cast<void *>(&pager_));
        add_places(program, "arguments", arena, arguments_);
        add_places(program, "results", arena, results_);
    }

    void add_places(const tvm::ffi::json::Object &program, const char *group,
                    const tvm::ffi::Tensor &arena, std::vector<Place> &places)
    {
        using namespace tvm::ffi;
        for (const Any &item : program[String(group)].cast<json::Array>()) {
            const json::Object about = item.cast<json::Object>();
            const String where = about[String("where")].cast<String>();
            const String dtype = about[String("dtype")].cast<String>();
            DLDataType element{kDLFloat, 32, 1};
            if (dtype == "int32" || dtype == "uint32") { /* the bits of signed numbers */
                element = DLDataType{kDLInt, 32, 1};
            } else if (dtype == "bool") {
                element = DLDataType{kDLInt, 8, 1};
            }
            int64_t elements = 1;
            for (const Any &extent : about[String("shape")].cast<json::Array>()) {
                elements *= extent.cast<int64_t>();
            }
            Place place;
            place.name = about[String("name")].cast<String>();
            place.bytes = static_cast<size_t>(elements) * element.bits / 8u;
            place.is_param = about[String("parameter")].cast<bool>();
            if (where == "arena") {
                place.memory = static_cast<uint8_t *>(arena.data_ptr()) + number(about, "offset");
            } else if (where == "caller") {
                const Tensor buffer = tensor(elements, element);
                place.memory = static_cast<uint8_t *>(buffer.data_ptr());
                parameters_.push_back(buffer);
            } else if (where == "frozen") { /* the argument as it was */
                place.memory = arguments_.at(static_cast<size_t>(number(about, "updates"))).memory;
            }
            places.push_back(std::move(place));
        }
    }

    static int64_t number(const tvm::ffi::json::Object &object, const char *key)
    {
        return object[tvm::ffi::String(key)].cast<int64_t>();
    }

    Pager pager_;
    tvm::ffi::Optional<tvm::ffi::Module> machine_;
    tvm::ffi::Function step_;
    size_t arena_bytes_ = 0, storage_bytes_ = 0;
    std::vector<Place> arguments_, results_;
    std::vector<tvm::ffi::Any> parameters_; /* arena, pager, buffers of the caller */
};

} // namespace poetc

#endif
