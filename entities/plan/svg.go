package plan

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// Sizes of a picture, in pixels.
const (
	boxHeight = 28
	rowHeight = 42
	layerGap  = 72
	margin    = 20
	keyHeight = 34
	charWidth = 7.3 // of text of 12 pixels
)

// kindColours are the colours of the kinds in pictures.
var kindColours = map[Kind]string{
	Deploy: "#2563eb", Callback: "#9333ea", Sync: "#0d9488", Redeploy: "#ea580c", Reconcile: "#b45309", DNS: "#4b5563",
}

// SVG draws the plan. Nodes that may begin first are on the left. The border colour shows the kind, the fill colour the state, bold lines
// the longest path. Edges that follow from others are omitted. A dashed edge waits for an end, successful or not.
func (p *Plan) SVG(progress []Progress) string {
	l := p.layout()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n", l.width, l.height)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	at := margin
	for _, k := range kinds {
		if slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Kind == k }) {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" rx="2" fill="%s"/><text x="%d" y="%d" fill="#374151">%s</text>`+"\n", at, margin-8, kindColours[k], at+18, margin+2, k)
			at += 34 + textWidth(string(k))
		}
	}
	longest := p.LongestPath()
	p.drawEdges(&b, l, longest)
	for n := range p.Nodes {
		weight := 1.5
		if slices.Contains(longest, n) {
			weight = 3
		}
		title := p.Nodes[n].String()
		if text := p.stateText(n, progress); text != "" {
			title += ": " + text
		}
		fmt.Fprintf(&b, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="%s" stroke="%s" stroke-width="%g"/><text x="%d" y="%d" fill="#111827">%s</text></g>`+"\n",
			escaped(title), l.x[n], l.y[n], l.w[n], boxHeight, p.colour(n, progress), kindColours[p.Nodes[n].Kind], weight, l.x[n]+10, l.y[n]+boxHeight/2+4, escaped(p.Nodes[n].String()))
	}
	return b.String() + "</svg>\n"
}

// drawEdges draws the edges below the boxes.
func (p *Plan) drawEdges(b *strings.Builder, l layout, longest []int) {
	bold := func(from, to int) bool {
		i := slices.Index(longest, from)
		return i >= 0 && i+1 < len(longest) && longest[i+1] == to
	}
	implied := p.implied()
	for n := range p.Nodes {
		for _, edges := range []struct {
			from []int
			dash string
		}{{p.Nodes[n].Needs, ""}, {p.Nodes[n].After, ` stroke-dasharray="5 4"`}} {
			for _, m := range edges.from {
				style := `stroke="#9ca3af" stroke-width="1.2"`
				switch {
				case bold(m, n):
					style = `stroke="#111827" stroke-width="2.6"`
				case implied(m, n):
					continue
				}
				x1, y1, x2, y2 := l.x[m]+l.w[m], l.y[m]+boxHeight/2, l.x[n], l.y[n]+boxHeight/2
				bend := max(layerGap/2, (x2-x1)/3)
				fmt.Fprintf(b, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" %s%s/>`+"\n", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2, style, edges.dash)
			}
		}
	}
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder returns no error
	return b.String()
}

func textWidth(text string) int { return int(charWidth * float64(len(text))) }

// layout is the positions of the boxes.
type layout struct {
	x, y, w       []int
	width, height int
}

// layout places a node right of all nodes that it waits for, and near the nodes that it is connected with.
func (p *Plan) layout() layout {
	size := len(p.Nodes)
	l := layout{x: make([]int, size), y: make([]int, size), w: make([]int, size)}
	var layers [][]int
	for n, depth := range p.depths() {
		for len(layers) < depth {
			layers = append(layers, nil)
		}
		layers[depth-1] = append(layers[depth-1], n)
	}
	p.untangle(layers)
	rows := 0
	for _, layer := range layers {
		rows = max(rows, len(layer))
	}
	x := margin
	for _, layer := range layers {
		width := 0
		for _, n := range layer {
			width = max(width, textWidth(p.Nodes[n].String())+20)
		}
		top := margin + keyHeight + (rows-len(layer))*rowHeight/2
		for i, n := range layer {
			l.x[n], l.y[n], l.w[n] = x, top+i*rowHeight, width
		}
		x += width + layerGap
	}
	l.width = max(x-layerGap, 560) + margin
	l.height = margin + keyHeight + rows*rowHeight + margin/2
	return l
}

// untangle sorts the nodes of each layer by the mean position of their neighbours, in several passes in both directions.
func (p *Plan) untangle(layers [][]int) {
	before := make([][]int, len(p.Nodes))
	for n := range p.Nodes {
		before[n] = slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After)
	}
	dependents := p.dependents()
	row := make([]float64, len(p.Nodes))
	setRows := func(layer []int) {
		for i, n := range layer {
			row[n] = float64(i) - float64(len(layer))/2
		}
	}
	sort := func(layer []int, others [][]int) {
		mean := make(map[int]float64, len(layer))
		for _, n := range layer {
			mean[n] = row[n]
			if len(others[n]) > 0 {
				sum := 0.0
				for _, m := range others[n] {
					sum += row[m]
				}
				mean[n] = sum / float64(len(others[n]))
			}
		}
		slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
		setRows(layer)
	}
	for _, layer := range layers {
		setRows(layer)
	}
	for range 4 {
		for i := 1; i < len(layers); i++ {
			sort(layers[i], before)
		}
		for i := len(layers) - 2; i >= 0; i-- {
			sort(layers[i], dependents)
		}
	}
}

// implied returns a function that reports whether a longer path connects both ends of an edge.
func (p *Plan) implied() func(from, to int) bool {
	words := (len(p.Nodes) + 63) / 64
	ancestors := make([][]uint64, len(p.Nodes)) // all nodes that must end before a node
	indirect := make([][]uint64, len(p.Nodes))  // all nodes that must end before one of its predecessors
	for _, n := range p.InOrder() {
		ancestors[n], indirect[n] = make([]uint64, words), make([]uint64, words)
		for _, m := range slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After) {
			for w := range words {
				indirect[n][w] |= ancestors[m][w]
			}
			ancestors[n][m/64] |= 1 << (m % 64)
		}
		for w := range words {
			ancestors[n][w] |= indirect[n][w]
		}
	}
	return func(from, to int) bool { return indirect[to][from/64]&(1<<(from%64)) != 0 }
}
