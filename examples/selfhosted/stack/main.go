// Program stack simulates the services of a household. It is their custom runtime, and the commands that connect them.
//
// Each service is a small server on its own socket below .converge/. The services depend on each other like the real ones: an
// application does not start without its database, the indexer answers no search before the first registration, and the proxy knows
// only the routes that were pushed to it. Converge calls `apply`, `fetch` and `remove` as a custom runtime. It runs `register`,
// `search`, `capture`, `push`, `redeploy` and `dns` for the nodes of a plan. `serve` is a server itself, and `stop` ends all servers.
package main

import (
	"errors"
	"fmt"
	"os"
)

// Exit codes. The runtime's definition lists 75 as retryable; 1 is permanent.
const (
	exitFailed   = 1
	exitTryLater = 75 // EX_TEMPFAIL of sysexits.h
	exitBadUsage = 64
)

const usage = "usage: stack apply | fetch | remove | register | search | capture | push | redeploy | dns | stop | serve"

func main() {
	verbs := map[string]func() error{
		"apply": apply, "fetch": fetch, "remove": remove, "stop": stop, "serve": serve,
		"register": register, "capture": capture, "search": search, "push": push, "redeploy": redeploy, "dns": names,
	}
	var verb func() error
	if len(os.Args) > 1 {
		verb = verbs[os.Args[1]]
	}
	if verb == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(exitBadUsage)
	}
	if err := verb(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		var later tryLater
		if errors.As(err, &later) {
			os.Exit(exitTryLater)
		}
		os.Exit(exitFailed)
	}
}

// tryLater is a failure that a retry may fix.
type tryLater struct{ error }
