// The priority of one background thread, and when it offers its core. Used by background.cpp, which declares
// for everybody else what callers need: on_background_thread(), note_frame() and give_way().
//
// A background thread begins with the priority of the thread that started it, a scheduler. So a large call
// that has the machine for itself is as fast as one that a scheduler runs. As soon as frames are played, or
// several large calls are there, the thread lowers its priority. Without a privilege Linux lets no thread
// raise it again, so background.cpp ends such a thread later and starts another.
#pragma once

namespace exphil::core {

// Called once, by a thread that begins.
void begin_background_thread();
// Of the calling background thread.
bool has_low_priority();
void lower_priority();

// Several large calls are there: one came while another waited or ran.
void note_several_calls();
// Neither frames nor several large calls in the last 100 milliseconds. Any thread.
bool is_quiet();

}  // namespace exphil::core
