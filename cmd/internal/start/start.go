// Package start makes a program start quickly. It imports nothing of ours, so it is initialized before most other packages.
package start

import "runtime/debug"

// usual is the percentage that GOGC sets. The initialization of all packages allocates about 10 MB and frees nearly nothing; two collections
// during it take a quarter of the CPU time of `converge --help`.
var usual = debug.SetGCPercent(400)

// Done restores the usual setting, before a command runs.
func Done() { debug.SetGCPercent(usual) }
