package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

// The goals of the board.
const (
	goalPage     = 200 * time.Millisecond
	goalPageSize = 100e3 // bytes
	goalChange   = time.Second
	goalAct      = 300 * time.Millisecond
	goalBrowsers = 0.05 // of a core, for all streams, above none
	browsers     = 100
	boardRounds  = 20

	boardServices = 1000 // of one application
)

// served is a running `converge serve`.
type served struct {
	url     string
	process *exec.Cmd
}

// startServe starts a server for the world, and waits for its address.
func startServe(ctx context.Context, w *world, program string) (*served, error) {
	process := exec.CommandContext(ctx, program, "serve", "--address", w.server.address, "--listen", "127.0.0.1:0", "--store", w.store())
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = stopWithin
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	s := &served{process: process}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "Board" {
			s.url = words[1]
			go io.Copy(io.Discard, out) //nolint:errcheck // until the process ends
			return s, nil
		}
	}
	return nil, errors.Join(errors.New("converge serve printed no address"), s.stop())
}

func (s *served) stop() error { return errors.Join(s.process.Cancel(), s.process.Wait()) }

// get reads a page, and returns how long that took and how large it is.
func (s *served) get(ctx context.Context, path string) (took time.Duration, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return time.Since(began), body, err
}

// boardCost is the result of the measurements.
type boardCost struct {
	*bench
	w *world
	a application
	s *served
}

// measureBoard serves the board of many services, and reads it as browsers do.
func measureBoard(ctx context.Context, b *bench) (err error) {
	bin, err := buildAll(ctx, b.dir)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var a application // the first of several, of which none is larger than a file of a configuration may be
	for n, left := 0, b.services; left > 0; n, left = n+1, left-boardServices {
		each := application{name: fmt.Sprintf("board%d", n), channels: 1, services: serviceNames(min(left, boardServices)), version: "v1", steady: unobserved}
		if err := w.publish(ctx, each); err != nil {
			return err
		}
		if n == 0 {
			a = each
		}
	}
	query := fmt.Sprintf("WorkflowType='%s' AND %s='CONVERGED'", protocol.ServiceWorkflow, protocol.AttrStatus)
	if err := until(ctx, time.Second/4, func() (bool, error) {
		found, err := w.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		return found.GetCount() >= int64(b.services), err
	}); err != nil {
		return err
	}
	began := time.Now()
	s, err := startServe(ctx, w, filepath.Join(bin, "converge"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	c := &boardCost{bench: b, w: w, a: a, s: s}
	for _, measure := range []func(context.Context) error{
		func(ctx context.Context) error { return c.cold(ctx, began) }, c.pages, c.acts, c.streams, c.scripts,
	} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *boardCost) add(what string, v report.Value, spread string, goal *report.Value) {
	c.Add(report.Line{Row: c.row, What: what, Measured: v, Spread: spread, Goal: goal})
}

// cold measures how soon a server that has just started has the first page, and knows all services.
func (c *boardCost) cold(ctx context.Context, began time.Time) error {
	if _, _, err := c.s.get(ctx, "/services"); err != nil {
		return err
	}
	first := time.Since(began)
	if err := until(ctx, 50*time.Millisecond, func() (bool, error) {
		var page api.ServicesPage
		_, body, err := c.s.get(ctx, "/api/v1/services?limit=1")
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		return page.Complete && page.Total == c.options.services, err
	}); err != nil {
		return err
	}
	c.add(fmt.Sprintf("start to knowing all of %d services", c.options.services), report.Dur(time.Since(began)), "first page after "+report.Dur(first).String(), nil)
	return nil
}

// pages measures each page: how long the server takes, and how large it is.
func (c *boardCost) pages(ctx context.Context) error {
	one := "/services/" + c.a.name + "/" + c.a.services[len(c.a.services)/2]
	for _, path := range []string{"/", "/services", "/services?name=" + c.a.services[len(c.a.services)/2], one, one + "/history", one + "/timeline"} {
		var all []time.Duration
		var size int
		for range boardRounds {
			took, body, err := c.s.get(ctx, path)
			if err != nil {
				return err
			}
			all, size = append(all, took), len(body)
		}
		c.add("page "+strings.Replace(path, one, "of a service", 1), report.Dur(report.Median(all)), "p95 "+report.Dur(report.Quantile(all, 0.95)).String(), report.Ref(report.Dur(goalPage)))
		if size > 10e3 {
			c.add("size of page "+strings.Replace(path, one, "of a service", 1), report.Of(float64(size), report.Bytes), "", report.Ref(report.Of(goalPageSize, report.Bytes)))
		}
	}
	return nil
}

// acts measures how soon an act is acknowledged, without an issuer.
func (c *boardCost) acts(ctx context.Context) error {
	client := api.Client{URL: c.s.url}
	var all []time.Duration
	for n := range boardRounds {
		verb := protocol.Pause
		if n%2 > 0 {
			verb = protocol.Resume
		}
		began := time.Now()
		if err := client.Act(ctx, api.ServicePath(c.a.name, c.a.services[0]), verb, "", protocol.ScopeRequest{RequestMeta: protocol.RequestMeta{By: "bench"}}, nil); err != nil {
			return err
		}
		all = append(all, time.Since(began))
	}
	c.add("act to its answer", report.Dur(report.Median(all)), "p95 "+report.Dur(report.Quantile(all, 0.95)).String(), report.Ref(report.Dur(goalAct)))
	return nil
}

// streams measures what browsers cost that only look: at rest, and until they know of a change.
func (c *boardCost) streams(ctx context.Context) error {
	none, err := c.rest(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan string, browsers*boardRounds*10)
	var g errgroup.Group
	for range browsers {
		opened := make(chan error, 1)
		g.Go(func() error { return c.follow(ctx, opened, changes) })
		if err := <-opened; err != nil {
			return err
		}
	}
	with, err := c.rest(ctx)
	if err != nil {
		return err
	}
	c.add("CPU of the server without browsers", report.Of(none.door, report.Cores), "Temporal "+report.Of(none.temporal, report.Cores).String(), nil)
	c.add(fmt.Sprintf("CPU of %d browsers at rest, above that", browsers), report.Of(with.door-none.door, report.Cores),
		"Temporal "+report.Of(with.temporal-none.temporal, report.Cores).String(), report.Ref(report.Of(goalBrowsers, report.Cores)))
	c.Note(c.row, "actions in %s: %d without browsers, %d with %d", c.options.rest, none.actions, with.actions, browsers)
	return c.changes(ctx, changes)
}

// boardRest is what a rest took: parts of a core, and actions of Temporal.
type boardRest struct {
	door, temporal float64
	actions        int64
}

func (c *boardCost) rest(ctx context.Context) (r boardRest, err error) {
	if err := pause(ctx, 2*time.Second); err != nil {
		return r, err
	}
	door, err := readProcess(c.s.process.Process.Pid)
	if err != nil {
		return r, err
	}
	server, err := c.w.server.used()
	if err != nil {
		return r, err
	}
	if err := pause(ctx, c.options.rest); err != nil {
		return r, err
	}
	doorEnd, err := readProcess(c.s.process.Process.Pid)
	if err != nil {
		return r, err
	}
	serverEnd, err := c.w.server.used()
	for kind, n := range serverEnd.Actions {
		r.actions += n - server.Actions[kind]
	}
	r.door, r.temporal = part(doorEnd.CPU-door.CPU, c.options.rest), part(serverEnd.CPU-server.CPU, c.options.rest)
	return r, err
}

// follow reads a stream, and says which services have changed.
func (c *boardCost) follow(ctx context.Context, opened chan<- error, changes chan<- string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.s.url+"/api/v1/events", nil)
	if err != nil {
		opened <- err
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	opened <- err
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var event api.Changed
		if !ok || json.Unmarshal([]byte(data), &event) != nil {
			continue
		}
		for _, s := range event.Services {
			select {
			case changes <- s.Service + " " + s.Version:
			default: // enough were counted
			}
		}
	}
	return nil
}

// changes measures the time from a release until the streams of all browsers have it.
func (c *boardCost) changes(ctx context.Context, changes <-chan string) error {
	var all []time.Duration
	for n := range boardRounds {
		service, version := c.a.services[1+n], fmt.Sprintf("c%d", n)
		began, err := signalRelease(ctx, c.w.client, protocol.ServiceID(c.a.name, service), version)
		if err != nil {
			return err
		}
		for received := 0; received < browsers; {
			select {
			case change := <-changes:
				if change == service+" "+version {
					received++
				}
			case <-time.After(30 * time.Second):
				return fmt.Errorf("%d of %d streams had %s %s within 30s", received, browsers, service, version)
			}
		}
		all = append(all, time.Since(began))
	}
	c.add(fmt.Sprintf("release to the change at %d browsers", browsers), report.Dur(report.Median(all)), "p95 "+report.Dur(report.Quantile(all, 0.95)).String(), report.Ref(report.Dur(goalChange)))
	return nil
}

// scripts counts what a browser loads once.
func (c *boardCost) scripts(ctx context.Context) error {
	size := 0
	for _, name := range []string{"board.js", "idiomorph.js"} {
		_, body, err := c.s.get(ctx, "/static/"+name)
		if err != nil {
			return err
		}
		size += len(body)
	}
	c.add("all script", report.Of(float64(size), report.Bytes), "", report.Ref(report.Of(30e3, report.Bytes)))
	return nil
}
