// Program web is the custom runtime of the hello and the gates example, and the server that it runs: `apply` starts the server of one
// release channel in its own process, `fetch` reports it as a structured fetch document, `remove` and `stop` end it, `probe` checks
// whether its requests fail, and `serve` is the server itself.
//
// It uses only the standard library, and nothing of Converge: a custom runtime needs only the contract of environment variables, exit
// codes and one JSON document.
package main

import (
	"errors"
	"fmt"
	"os"
)

// Exit codes. The runtime's definition lists 75 as retryable; 1 is permanent.
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
		if errors.Is(err, waits{}) { // the reason is on stdout
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

// tryLater is a failure that a retry may fix.
type tryLater struct{ error }
