package strict

import (
	"fmt"
	"strings"
)

// graft records that the value at a path comes from another document.
type graft struct {
	at   string
	from *Decoder
	path string // in that document
}

// Graft records that the value at a path, and everything below it, comes from a path of another document. Positions refer to that
// document, and so do checks for presence and validity.
func (d *Decoder) Graft(at string, from *Decoder, path string) {
	d.grafts = append(d.grafts, graft{at, from, path})
}

// origin returns the document that declares the value at a path, and the path there.
func (d *Decoder) origin(path string) (*Decoder, string) {
	for _, g := range d.grafts {
		rest, below := strings.CutPrefix(path, g.at)
		if below && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return g.from.origin(g.path + rest)
		}
	}
	return d, path
}

// Location returns the position of the value at path for messages: shop.converge.yaml:12.
func (d *Decoder) Location(path string) string {
	from, path := d.origin(path)
	return fmt.Sprintf("%s:%d", from.File, from.At(path).Line)
}
