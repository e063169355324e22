// A plugin of another build of qkv, under the name that the command looks for.
extern "C" {

__attribute__((visibility("default"))) const char* qkv_peer_interface() { return "another"; }

// Never to be called.
__attribute__((visibility("default"))) void* qkv_make_peer() { __builtin_trap(); }
__attribute__((visibility("default"))) void* qkv_make_timed_peer() { __builtin_trap(); }

}  // extern "C"
