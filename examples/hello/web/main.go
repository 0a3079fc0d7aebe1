// Program web is the custom runtime of the hello and the gates example, and the server that it runs:
// `apply` starts the server of one release channel as a process of its own, `fetch` reports it as a
// structured fetch document, `remove` and `stop` end it, `probe` asks it whether its requests fail, and
// `serve` is the server itself.
//
// It uses nothing but the standard library, and nothing of Converge: what a custom runtime needs is
// the contract of environment variables, exit codes and one JSON document.
package main

import (
	"errors"
	"fmt"
	"os"
)

// Exit codes. The runtime's definition lists 75 as worth another attempt; 1 is for good.
const (
	exitFailed    = 1
	exitTryLater  = 75 // EX_TEMPFAIL of sysexits.h
	exitBadUsage  = 64
	usage         = "usage: web apply | fetch | remove | probe [MOST] | stop [CHANNEL] | serve"
	defaultFolder = ".converge/hello"
)

func main() {
	verbs := map[string]func() error{"apply": apply, "fetch": fetch, "remove": remove, "probe": probe, "stop": stop, "serve": serve}
	var verb func() error
	if len(os.Args) > 1 {
		verb = verbs[os.Args[1]]
	}
	if verb == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(exitBadUsage)
	}
	if err := verb(); err != nil {
		if errors.Is(err, waits{}) { // why stands on stdout
			os.Exit(exitWait)
		}
		fmt.Fprintln(os.Stderr, err)
		var later tryLater
		if errors.As(err, &later) {
			os.Exit(exitTryLater)
		}
		os.Exit(exitFailed)
	}
}

// waits is a probe that does not pass.
type waits struct{}

func (waits) Error() string { return "not now" }

// tryLater is a failure that may go away by itself.
type tryLater struct{ error }
