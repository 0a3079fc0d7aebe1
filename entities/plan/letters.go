package plan

import (
	"slices"
	"strings"
)

// letters are the letters of the states, in the same order. Store and history use one letter per node.
const letters = ".rhdfbs"

var letterStates = []State{Waiting, Running, Held, Done, Failed, Blocked, Superseded}

// Letter returns the letter of a state.
func (s State) Letter() byte {
	for n := range letterStates {
		if letterStates[n] == s {
			return letters[n]
		}
	}
	return letters[0]
}

// StateOfLetter returns the state of a letter.
func StateOfLetter(letter byte) State {
	if n := strings.IndexByte(letters, letter); n >= 0 {
		return letterStates[n]
	}
	return Waiting
}

// Letters returns a letter per node.
func Letters(progress []Progress) string {
	out := make([]byte, len(progress))
	for n := range progress {
		out[n] = progress[n].State.Letter()
	}
	return string(out)
}

// ReadLetters returns the states that letters encode. The cause of a blocked node is the first failed node that it needs.
func (p *Plan) ReadLetters(text string) []Progress {
	progress := make([]Progress, len(p.Nodes))
	for n := range min(len(progress), len(text)) {
		progress[n].State = StateOfLetter(text[n])
	}
	if !slices.ContainsFunc(progress, func(s Progress) bool { return s.State == Failed }) {
		return progress
	}
	neededBy, seen := p.neededBy(), make([]bool, len(progress))
	for n := range progress {
		if progress[n].State != Failed {
			continue
		}
		for _, m := range transitiveDependents(neededBy, seen, []int{n}) {
			if progress[m].State == Blocked {
				progress[m].Cause = n
			}
		}
	}
	return progress
}
