// Threads of the library's own, and the cores that they use. Safe from any thread.
#pragma once

namespace exphil::core {

// Called first by each such thread. A thread begins with the name and the cores of the one that started it,
// which may be a scheduler that the VM has bound to one core (erl +sbt). This gives it a name of its own, of
// at most 15 bytes, and every core that the process may use.
void begin_own_thread(const char* name) noexcept;

// How many cores the process may use; the calling thread may be bound to fewer.
int process_cores() noexcept;

}  // namespace exphil::core
