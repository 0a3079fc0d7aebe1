package sources

import (
	"crypto/sha256"
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

// Templates and kustomizations can use unlimited time and memory, and Kustomize can run git and fetch URLs, which no option disables. So
// a separate process renders them: without an environment, so that it finds no program; without a network; and it is ended when it
// exceeds its limits. intent/render runs in that process.

// RendererName is the first argument (the name) of that process. The second argument is the time limit of one rendering.
const RendererName = "converge-renderer"

// Limits of one rendering.
const (
	MaxTime   = 30 * time.Second
	MaxMemory = 1 << 30 // bytes, for the whole process
)

// Exit codes of the process when it ends itself. Go also uses 2 when it cannot allocate memory.
const (
	ExitMemory = 2
	ExitTime   = 3
)

// RenderInSubprocess configures rendering by a program that contains intent/render, with a time limit for each rendering. It calls program
// when the first source must be rendered; an error is reported as a problem of that source. Main functions call it before anything else.
func RenderInSubprocess(program func() (path string, err error), limit time.Duration) {
	sharedRenderer.mu.Lock()
	defer sharedRenderer.mu.Unlock()
	if sharedRenderer.process != nil { // of a previous program
		sharedRenderer.wait()
	}
	sharedRenderer.program, sharedRenderer.limit, sharedRenderer.inProcess = program, limit, nil
	rendered.forget()
}

// RenderInProcess configures rendering in this process without limits, by intent/render in tests.
func RenderInProcess(perform func(order []byte) Answer) {
	sharedRenderer.inProcess = perform
	rendered.forget()
}

// Order is a rendering request: a kustomization, a chart or a template.
type Order struct {
	Template      *Template               `json:",omitempty"`
	Kustomization string                  `json:",omitempty"` // its directory
	Files         map[string][]byte       `json:",omitempty"` // all its files by path
	Chart         []*archive.BufferedFile `json:",omitempty"`
	Release       *Release                `json:",omitempty"` // nil: only inspect the chart
}

// Answer is the result of an order.
type Answer struct {
	Texts   []Text   `json:",omitempty"`
	Refusal *Refusal `json:",omitempty"`
	Error   string   `json:",omitempty"`
}

// toError returns the error of an order, or nil.
func (a Answer) toError() error {
	if a.Refusal != nil {
		return a.Refusal
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// render executes an order.
func render(o Order) (Answer, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return Answer{}, err
	}
	a := rendered.get(data, sharedRenderer.render)
	return a, a.toError()
}

// rendered are the latest answers without an error. Rendering is a function of the order, and several compilations of one command send
// the same orders.
var rendered answers

// maxAnswers bounds the bytes of the answers that are kept.
const maxAnswers = 64 << 20

type answers struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]Answer
	size  int
}

// forget drops all answers, those of another renderer.
func (c *answers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.size = nil, 0
}

// get returns the answer to an order, which it renders if it is not known.
func (c *answers) get(order []byte, render func([]byte) Answer) Answer {
	key := sha256.Sum256(order)
	c.mu.Lock()
	a, found := c.known[key]
	c.mu.Unlock()
	if found {
		return a
	}
	if a = render(order); a.toError() != nil {
		return a // a limit that was exceeded on a busy machine may not be the next time
	}
	size := len(key)
	for _, text := range a.Texts {
		size += len(text.Name) + len(text.Data)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size += size; c.known == nil || c.size > maxAnswers {
		c.known, c.size = map[[sha256.Size]byte]Answer{}, size
	}
	c.known[key] = a
	return a
}

// sharedRenderer is shared by all renderings of the process.
var sharedRenderer renderer

type renderer struct {
	program   func() (path string, err error)
	limit     time.Duration
	inProcess func(order []byte) Answer

	mu      sync.Mutex
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// render sends an order to the renderer process. It starts the process if there is none, and starts it again if it has ended for any
// reason.
func (r *renderer) render(order []byte) Answer {
	if r.inProcess != nil {
		return r.inProcess(order)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 2 {
		if r.process == nil {
			if err := r.start(); err != nil {
				return Answer{Error: strict.OneLine(fmt.Sprintf("rendering failed: %v", err))}
			}
		}
		if _, err := r.in.Write(append(order, '\n')); err == nil {
			break
		}
		r.wait()
	}
	if r.process == nil {
		return Answer{Error: "rendering failed: the rendering process ends immediately"}
	}
	var a Answer
	if err := r.out.Decode(&a); err != nil {
		return Answer{Refusal: r.exitReason(r.wait())}
	}
	return a
}

// exitReason returns why the process ended.
func (r *renderer) exitReason(code int) *Refusal {
	switch code {
	case ExitTime:
		return &Refusal{fmt.Sprintf("rendering took longer than %v", r.limit), "templates that terminate"}
	case ExitMemory:
		return &Refusal{fmt.Sprintf("rendering took more than %d MiB of memory", MaxMemory>>20), "templates that create less"}
	}
	return &Refusal{fmt.Sprintf("the rendering process ended unexpectedly (%d)", code), "templates that can be rendered"}
}

// start starts the process. It ends when its parent ends.
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

// wait waits until the process has ended and returns its exit code.
func (r *renderer) wait() int {
	_ = r.in.Close()
	_ = r.process.Wait() // the exit code has the result
	code := r.process.ProcessState.ExitCode()
	r.process = nil
	return code
}
