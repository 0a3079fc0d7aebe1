package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
)

// A template or a kustomization can take all time and all memory that there is, and what renders it has doors to the
// world that no option closes: Kustomize runs git, and fetches. So it is rendered apart, in a process of its own, which
// is this very program started once more: without an environment, so that no program is found; without a network; and
// ended when it takes more than its share.

// rendererName is what that process is called.
const rendererName = "converge-renderer"

// What one rendering may take.
const (
	maxTime   = 30 * time.Second
	maxMemory = 1 << 30 // bytes, all that the process holds
)

// How the process ends itself. Go ends one that gets no memory with 2, too.
const (
	exitMemory = 2
	exitTime   = 3
)

// RunRenderer is the first thing that the main function calls of a program that compiles: where the program was started
// to render, it does that and never returns. Without it everything is rendered in the program itself, unbounded.
func RunRenderer() {
	if os.Args[0] == rendererName {
		limit, _ := time.ParseDuration(os.Args[1])
		serveRenderings(limit)
		os.Exit(0)
	}
	if runtime.GOOS == "linux" {
		theRenderer.program = "/proc/self/exe" // this very program, whatever its file has become
	} else if path, err := os.Executable(); err == nil {
		theRenderer.program = path
	}
}

// order is what is to be rendered: a kustomization or a chart.
type order struct {
	Kustomization string                  `json:",omitempty"` // its directory
	Files         map[string][]byte       `json:",omitempty"` // all that it is made of, by path
	Chart         []*archive.BufferedFile `json:",omitempty"`
	Release       *Release                `json:",omitempty"` // without: the chart is only looked into
}

// answer is what became of an order.
type answer struct {
	Texts   []Text   `json:",omitempty"`
	Refusal *Refusal `json:",omitempty"`
	Error   string   `json:",omitempty"`
}

// err is why there is nothing, or nil.
func (a answer) err() error {
	if a.Refusal != nil {
		return a.Refusal
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// render carries out an order, apart where that is possible.
func render(o order) (answer, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return answer{}, err
	}
	a := theRenderer.render(data)
	return a, a.err()
}

// perform carries out an order, wherever it is.
func perform(data []byte) (a answer) {
	var o order
	err := json.Unmarshal(data, &o)
	switch {
	case err != nil:
	case o.Kustomization != "":
		var text []byte
		text, err = build(o.Files, o.Kustomization)
		a.Texts = []Text{{Data: text}}
	case o.Release == nil:
		err = (&Chart{o.Chart}).usable()
	default:
		a.Texts, err = (&Chart{o.Chart}).render(*o.Release)
	}
	if err != nil && !errors.As(err, &a.Refusal) {
		a.Error = err.Error()
	}
	return a
}

// theRenderer is one for all renderings of the process.
var theRenderer = renderer{limit: maxTime}

type renderer struct {
	program string // "": there is none
	limit   time.Duration

	mu      sync.Mutex
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// render gives an order to the process, which is started when there is none. One that was ended meanwhile, by whom ever,
// is started once more.
func (r *renderer) render(order []byte) answer {
	if r.program == "" {
		return perform(order)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 2 {
		if r.process == nil {
			if err := r.start(); err != nil {
				return answer{Error: fmt.Sprintf("nothing can be rendered: %v", err)}
			}
		}
		if _, err := r.in.Write(append(order, '\n')); err == nil {
			break
		}
		r.ended()
	}
	if r.process == nil {
		return answer{Error: "nothing can be rendered: the process for it ends at once"}
	}
	var a answer
	if err := r.out.Decode(&a); err != nil {
		return answer{Refusal: r.overdrawn(r.ended())}
	}
	return a
}

// overdrawn is why the process ended.
func (r *renderer) overdrawn(code int) *Refusal {
	switch code {
	case exitTime:
		return &Refusal{fmt.Sprintf("rendering took longer than %v", r.limit), "templates that come to an end"}
	case exitMemory:
		return &Refusal{fmt.Sprintf("rendering took more than %d MiB of memory", maxMemory>>20), "templates that make less"}
	}
	return &Refusal{fmt.Sprintf("rendering ended by itself (%d)", code), "templates that can be rendered"}
}

// start starts the process. It ends when this one does.
func (r *renderer) start() error {
	cmd := exec.Command(r.program)
	cmd.Args, cmd.Env, cmd.Dir = []string{rendererName, r.limit.String()}, []string{}, "/"
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

// serveRenderings is the process: it carries out one order after the other until there are no more.
func serveRenderings(limit time.Duration) {
	answers := json.NewEncoder(os.Stdout)
	orders := json.NewDecoder(os.Stdin)
	os.Stdout = os.Stderr // which leads nowhere: a library that prints says nothing to anybody
	os.Clearenv()
	http.DefaultTransport = noNetwork{}
	debug.SetMemoryLimit(maxMemory / 4 * 3)
	go boundMemory()
	for {
		var o json.RawMessage
		if orders.Decode(&o) != nil {
			return
		}
		late := time.AfterFunc(limit, func() { os.Exit(exitTime) })
		a := perform(o)
		late.Stop()
		if answers.Encode(a) != nil {
			return
		}
	}
}

// boundMemory ends the process when it holds too much.
func boundMemory() {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(2 * time.Millisecond) {
		metrics.Read(samples)
		if samples[0].Value.Uint64()-samples[1].Value.Uint64() > maxMemory {
			os.Exit(exitMemory)
		}
	}
}

// noNetwork is what every client of the process asks that brings no transport of its own.
type noNetwork struct{}

func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nothing is fetched when compiling")
}
