package plan

import (
	"slices"
	"strings"
)

// letters are those of states, in the same order: what a store and a history hold of a node is one letter.
const letters = ".rhdfbs"

var lettered = []State{Waiting, Running, Held, Done, Failed, Blocked, Superseded}

// Letter of a state.
func (s State) Letter() byte {
	for n := range lettered {
		if lettered[n] == s {
			return letters[n]
		}
	}
	return letters[0]
}

// OfLetter is the state that a letter stands for.
func OfLetter(letter byte) State {
	if n := strings.IndexByte(letters, letter); n >= 0 {
		return lettered[n]
	}
	return Waiting
}

// Letters has a letter for each node.
func Letters(so []Progress) string {
	out := make([]byte, len(so))
	for n := range so {
		out[n] = so[n].State.Letter()
	}
	return string(out)
}

// Read is what letters say of the nodes. The cause of what is blocked is the first node that failed and is needed by it.
func (p *Plan) Read(text string) []Progress {
	so := make([]Progress, len(p.Nodes))
	for n := range min(len(so), len(text)) {
		so[n].State = OfLetter(text[n])
	}
	if !slices.ContainsFunc(so, func(s Progress) bool { return s.State == Failed }) {
		return so
	}
	needed, seen := p.needed(), make([]bool, len(so))
	for n := range so {
		if so[n].State != Failed {
			continue
		}
		for _, m := range behindOf(needed, seen, []int{n}) {
			if so[m].State == Blocked {
				so[m].Cause = n
			}
		}
	}
	return so
}
