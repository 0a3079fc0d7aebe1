package strict

import (
	"fmt"
	"strings"
)

// graft says that what stands at a path was taken from another document.
type graft struct {
	at   string
	from *Decoder
	path string // there
}

// Graft notes that what stands at a path, and below, was taken from a path of another document: that is where it stands for
// people, and where it is looked up whether it was given and right.
func (d *Decoder) Graft(at string, from *Decoder, path string) {
	d.grafts = append(d.grafts, graft{at, from, path})
}

// origin is the document that says what stands at a path, and the path there.
func (d *Decoder) origin(path string) (*Decoder, string) {
	for _, g := range d.grafts {
		rest, below := strings.CutPrefix(path, g.at)
		if below && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return g.from.origin(g.path + rest)
		}
	}
	return d, path
}

// Place is where the value of path stands, for a sentence: shop.converge.yaml:12.
func (d *Decoder) Place(path string) string {
	from, path := d.origin(path)
	return fmt.Sprintf("%s:%d", from.File, from.At(path).Line)
}
