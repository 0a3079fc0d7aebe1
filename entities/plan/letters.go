package plan

import (
	"slices"
	"strings"
)

// letters are the letters of the states, in the same order. Store and history use one letter per node.
const letters = ".rhdfbs"

var lettered = []State{Waiting, Running, Held, Done, Failed, Blocked, Superseded}

// Letter returns the letter of a state.
func (s State) Letter() byte {
	for n := range lettered {
		if lettered[n] == s {
			return letters[n]
		}
	}
	return letters[0]
}

// OfLetter returns the state of a letter.
func OfLetter(letter byte) State {
	if n := strings.IndexByte(letters, letter); n >= 0 {
		return lettered[n]
	}
	return Waiting
}

// Letters returns a letter per node.
func Letters(so []Progress) string {
	out := make([]byte, len(so))
	for n := range so {
		out[n] = so[n].State.Letter()
	}
	return string(out)
}

// Read returns the states that letters encode. The cause of a blocked node is the first failed node that it needs.
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
