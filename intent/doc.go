// Package intent turns what people write into what the engine works from: it reads the YAML of one
// application, finds everything wrong with it at once, compiles it into an immutable incarnation
// with the rules and payload templates of every service, renders a version's payloads from that,
// says how two incarnations differ, and keeps all of it in a store.
//
// Compiling is hermetic: the same sources give the same bytes, whatever the clock, the directory or
// the machine (D4). Only loading reads files, and only the store does anything else.
//
// It refuses to talk to runtimes or to Temporal, and of ours imports entities only.
package intent
