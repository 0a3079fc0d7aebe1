package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/chart/loader/archive"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// A template or a kustomization can take all time and all memory that there is, and what renders it has doors to the
// world that no option closes: Kustomize runs git, and fetches. So it is rendered apart, in a process of its own: without
// an environment, so that no program is found; without a network; and ended when it takes more than its share. intent/render
// is what runs there.

// RendererName is what that process is called, by its first argument; the second is the time that one rendering may take.
const RendererName = "converge-renderer"

// What one rendering may take.
const (
	MaxTime   = 30 * time.Second
	MaxMemory = 1 << 30 // bytes, all that the process holds
)

// How the process ends itself. Go ends one that gets no memory with 2, too.
const (
	ExitMemory = 2
	ExitTime   = 3
)

// RenderApart has everything rendered by a program that intent/render is in, within a limit for each rendering. The program is asked for
// when the first source has to be rendered; why there is none is then what is wrong with that source. It is for main functions, before
// anything else.
func RenderApart(program func() (path string, err error), limit time.Duration) {
	theRenderer.mu.Lock()
	defer theRenderer.mu.Unlock()
	if theRenderer.process != nil { // of another program
		theRenderer.ended()
	}
	theRenderer.program, theRenderer.limit, theRenderer.here = program, limit, nil
}

// RenderHere has everything rendered in this process, unbounded: by intent/render, in tests.
func RenderHere(perform func(order []byte) Answer) { theRenderer.here = perform }

// Order is what is to be rendered: a kustomization or a chart.
type Order struct {
	Kustomization string                  `json:",omitempty"` // its directory
	Files         map[string][]byte       `json:",omitempty"` // all that it is made of, by path
	Chart         []*archive.BufferedFile `json:",omitempty"`
	Release       *Release                `json:",omitempty"` // without: the chart is only looked into
}

// Answer is what became of an order.
type Answer struct {
	Texts   []Text   `json:",omitempty"`
	Refusal *Refusal `json:",omitempty"`
	Error   string   `json:",omitempty"`
}

// err is why there is nothing, or nil.
func (a Answer) err() error {
	if a.Refusal != nil {
		return a.Refusal
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// render carries out an order.
func render(o Order) (Answer, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return Answer{}, err
	}
	a := theRenderer.render(data)
	return a, a.err()
}

// theRenderer is one for all renderings of the process.
var theRenderer renderer

type renderer struct {
	program func() (path string, err error)
	limit   time.Duration
	here    func(order []byte) Answer

	mu      sync.Mutex
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// render gives an order to the process, which is started when there is none. One that was ended meanwhile, by whom ever,
// is started once more.
func (r *renderer) render(order []byte) Answer {
	if r.here != nil {
		return r.here(order)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 2 {
		if r.process == nil {
			if err := r.start(); err != nil {
				return Answer{Error: strict.OneLine(fmt.Sprintf("nothing can be rendered: %v", err))}
			}
		}
		if _, err := r.in.Write(append(order, '\n')); err == nil {
			break
		}
		r.ended()
	}
	if r.process == nil {
		return Answer{Error: "nothing can be rendered: the process for it ends at once"}
	}
	var a Answer
	if err := r.out.Decode(&a); err != nil {
		return Answer{Refusal: r.overdrawn(r.ended())}
	}
	return a
}

// overdrawn is why the process ended.
func (r *renderer) overdrawn(code int) *Refusal {
	switch code {
	case ExitTime:
		return &Refusal{fmt.Sprintf("rendering took longer than %v", r.limit), "templates that come to an end"}
	case ExitMemory:
		return &Refusal{fmt.Sprintf("rendering took more than %d MiB of memory", MaxMemory>>20), "templates that make less"}
	}
	return &Refusal{fmt.Sprintf("rendering ended by itself (%d)", code), "templates that can be rendered"}
}

// start starts the process. It ends when this one does.
func (r *renderer) start() error {
	if r.program == nil {
		return errors.New("this program has no renderer")
	}
	path, err := r.program()
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Env, cmd.Dir = []string{RendererName, r.limit.String()}, []string{}, "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	r.process, r.in, r.out = cmd, in, json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		r.process = nil
		return err
	}
	return nil
}

// ended waits until the process has ended and returns its exit code.
func (r *renderer) ended() int {
	_ = r.in.Close()
	_ = r.process.Wait() // the code says it
	code := r.process.ProcessState.ExitCode()
	r.process = nil
	return code
}
