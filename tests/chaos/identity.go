package main

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/tests/chaos/record"
)

// peopleGroup is the group of all people of a storm, whom a grant names for every verb, also for pins of the application. They prove who
// they are: each act carries a token of its own, of somebody who is called as the act is. Mallory has an account of the same issuer, in no
// group. So what keeps her from pinning with a token that she has read is that it was used.
const peopleGroup = "people"

// rules are the part of the application's configuration that says who may do what.
func (w *world) rules() string {
	return fmt.Sprintf(`identity: {issuer: %q, audience: converge, required: "*"}
authorization:
- {verbs: "*", to: ["group:%s"]}
`, w.issuer.URL, peopleGroup)
}

// token proves who somebody is. It holds for longer than a request waits for a worker and the store.
func (w *world) token(name string) (string, error) {
	groups := []string{}
	if name != record.Mallory {
		groups = []string{peopleGroup}
	}
	return w.issuer.Sign(map[string]any{"sub": name, "groups": groups, "exp": time.Now().Add(time.Hour).Unix()})
}
