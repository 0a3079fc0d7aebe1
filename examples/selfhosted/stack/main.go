// Program stack stands in for the services of a household, and is the custom runtime and the commands that fit them together.
//
// Each service is a small server on a socket of its own below .converge/. They need each other as the real ones do: an application does
// not start without its database, the indexer answers no search before somebody registered, and the proxy knows only those routes
// that were pushed to it. `apply`, `fetch` and `remove` are what Converge asks a custom runtime; `register`, `search`, `capture`, `push`, `redeploy` and `dns`
// are what runs for the nodes of a plan; `serve` is a server itself, and `stop` ends all of them.
package main

import (
	"errors"
	"fmt"
	"os"
)

// Exit codes. The runtime's definition lists 75 as worth another attempt; 1 is for good.
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

// tryLater is a failure that may go away by itself.
type tryLater struct{ error }
