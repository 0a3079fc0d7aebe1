package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"

	entityplan "github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// This file has services that need each other, whose plans run one after another while workers and the server are killed. Two
// witnesses say what happened: the commands and applies, which note when they begin and end, and the plan's record in the store, which is read
// again and again. Every node has to run, and none may begin once the store had that it was done.

// planChaos is how much of it.
type planChaos struct {
	seed            uint64
	services, kills int
}

// planCommands is what runs for the nodes: they note when they begin and end. Those of CALLBACK are each for a service.
const planCommands = `#!/bin/sh
[ "$CONVERGE_NODE" != CALLBACK ] || CONVERGE_NODE="CALLBACK of $PVN_SERVICE"
note() { printf '%s\t%s\t%s\t%s\n' "$1" "$CONVERGE_PLAN" "$CONVERGE_NODE" "$(date +%s%N)" >> "$(dirname "$0")/../nodes"; }
note begin
sleep 0.3
note end
`

// yaml declares the services; round is in the payload of each.
func (c planChaos) yaml(w *world, round int) string {
	text := fmt.Sprintf(`apiVersion: converge/v1
kind: Application
name: %s
plan: {dns: {command: [./run]}}
releaseChannels: [{name: staging, runtimes: [{name: site}]}]
---
%s`, application, w.siteRuntime())
	for n, service := range w.services {
		said := ""
		if n%3 > 0 {
			said += fmt.Sprintf(", requires: [%s]", w.services[n-1])
		}
		switch {
		case n == 0:
			said += ", aggregator: {sync: {strategy: dir, command: [./run]}}, dns: [{name: a.example.org}]"
		case n%2 == 0:
			said += ", setupCallback: {command: [./run]}"
		default:
			said += fmt.Sprintf(", feeds: [{aggregator: %s, content: here}], reconcilers: [{name: register, command: [./run]}]", w.services[0])
		}
		text += fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Service, name: %s, initialVersion: v1, custom: {env: {ROUND: \"%d\"}}%s}\n", service, round, said)
	}
	return text
}

// run has plans run until so many were killed, in an empty directory. An error says what went wrong, or what must not be.
func (c planChaos) run(ctx context.Context, dir string, talk io.Writer) (err error) {
	w, err := newWorld(ctx, dir, serviceNames(c.services))
	if err != nil {
		return err
	}
	defer w.stop()
	if err := os.WriteFile(filepath.Join(w.config(), "run"), []byte(planCommands), 0o755); err != nil { //nolint:gosec // it is run
		return err
	}
	for _, variable := range w.env("nobody") { // the store is read from here, too
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	s, err := store.Open(ctx, w.store())
	if err != nil {
		return err
	}
	defer s.Close()
	k := newKills(c, w, talk)
	for round := 1; round == 1 || k.left() > 0; round++ {
		began := time.Now()
		said, err := c.round(ctx, w, s, round, k)
		if err != nil {
			return fmt.Errorf("plan i%d: %w", round, err)
		}
		fmt.Fprintf(talk, "plan i%d is done after %s, %d kills so far: %s\n", round, time.Since(began).Round(time.Second), c.kills-k.left(), said)
	}
	return nil
}

// round publishes, and kills until the plan is over. It says what was compared.
func (c planChaos) round(ctx context.Context, w *world, s *store.Store, round int, k *kills) (said string, err error) {
	if err := os.WriteFile(filepath.Join(w.config(), "converge.yaml"), []byte(c.yaml(w, round)), 0o600); err != nil {
		return "", err
	}
	for {
		err := w.converge(ctx, nil, "config", "publish", w.config())
		if err == nil {
			break
		}
		if pauseErr := pause(ctx, inBetween); pauseErr != nil {
			return "", errors.Join(err, pauseErr)
		}
	}
	killing, stop := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() { k.run(killing) })
	seen, err := watchPlan(ctx, s, protocol.PlanOfIncarnation(application, record.Staging, int64(round)), &k.done)
	stop()
	killer.Wait()
	if err != nil {
		return "", err
	}
	return seen.judge(ctx, w, s, round)
}

// kills are drawn, each for a worker or the server.
type kills struct {
	world *world
	talk  io.Writer
	apart int          // so much of a plan is done in between, on the average
	done  atomic.Int64 // pieces of the plan that runs
	draw  *rand.Rand
	count int
	mu    sync.Mutex
}

func newKills(c planChaos, w *world, talk io.Writer) *kills {
	k := &kills{world: w, talk: talk, draw: rand.New(rand.NewPCG(c.seed, 0)), count: c.kills}
	if c.services > 10*c.kills { // a plan outlives them, and they meet all of it
		k.apart = 2 * c.services / max(c.kills, 1)
	}
	return k
}

func (k *kills) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// run kills one after another. Each is started again before it returns.
func (k *kills) run(ctx context.Context) {
	for k.left() > 0 {
		target := []string{worker1, worker2, serverName}[k.draw.IntN(3)]
		after, dead := k.draw.IntN(2500), 100+k.draw.IntN(1000)
		if pause(ctx, time.Duration(after)*time.Millisecond) != nil || k.await(ctx, k.draw.IntN(2*k.apart+1)) != nil {
			return
		}
		p := k.world.processes[target]
		fmt.Fprintf(k.talk, "%s is killed, %d pieces of the plan are done\n", target, k.done.Load())
		p.kill()
		_ = pause(ctx, time.Duration(dead)*time.Millisecond)
		p.revive()
		k.mu.Lock()
		k.count--
		k.mu.Unlock()
	}
}

// await waits until so much more of the plan is done.
func (k *kills) await(ctx context.Context, more int) error {
	for before := k.done.Load(); k.done.Load() < before+int64(more); {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// planSeen is what the store had of a plan, and when each piece of it was first seen to be done.
type planSeen struct {
	record protocol.PlanRecord
	done   map[piece]time.Time
}

// piece is a node, or one of its commands.
type piece struct{ node, command int }

const wholeNode = -1

// watchPlan reads the record of a plan again and again until it is over. It has not ended where nothing more comes of it.
func watchPlan(ctx context.Context, s *store.Store, of protocol.PlanRef, done *atomic.Int64) (planSeen, error) {
	seen, moved := planSeen{done: map[piece]time.Time{}}, time.Now()
	for {
		r, err := s.Plan(ctx, of)
		now := time.Now()
		if err != nil && !store.IsNotFound(err) {
			return seen, err
		}
		before := len(seen.done)
		if err := seen.note(&r, now); err != nil {
			return seen, err
		}
		if len(seen.done) > before || r.Nodes != seen.record.Nodes {
			moved = now
		}
		done.Store(int64(len(seen.done)))
		if seen.record = r; r.Over {
			return seen, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil || now.Sub(moved) > 2*patience {
			return seen, fmt.Errorf("it does not end, and nothing became of it for %s: %s %s %v", now.Sub(moved), r.Nodes, r.StepError, r.Notes)
		}
	}
}

// note notes what is done for the first time.
func (seen *planSeen) note(r *protocol.PlanRecord, now time.Time) error {
	parts := map[int]string{wholeNode: r.Nodes}
	for _, part := range r.Parts {
		parts[part.Node] = part.Done
	}
	for of, letters := range parts {
		for n, letter := range []byte(letters) {
			p := piece{n, wholeNode}
			if of != wholeNode {
				p = piece{of, n}
			}
			switch _, known := seen.done[p]; {
			case letter == entityplan.Done.Letter() && !known:
				seen.done[p] = now
			case letter != entityplan.Done.Letter() && known:
				return fmt.Errorf("node %d was done and is not any more: %s", n, letters)
			}
		}
	}
	return nil
}

// judge compares what the store had with what the nodes noted, and says what it compared.
func (seen *planSeen) judge(ctx context.Context, w *world, s *store.Store, round int) (said string, err error) {
	names, err := nodesOf(ctx, w, seen.record.PlanRef)
	if err != nil {
		return "", err
	}
	callbacks, err := seen.callbacks(ctx, s)
	if err != nil {
		return "", err
	}
	begun, ended, err := noted(w, seen.record.Name, round)
	if err != nil {
		return "", err
	}
	var wrong []error
	again, compared := 0, 0
	judge := func(name string, done time.Time) {
		compared++
		again += max(0, len(begun[name])-1)
		if len(ended[name]) == 0 {
			wrong = append(wrong, fmt.Errorf("%s is done, and nothing ran for it", name))
		}
		if slices.ContainsFunc(begun[name], done.Before) {
			wrong = append(wrong, fmt.Errorf("%s began again after the store had that it was done", name))
		}
	}
	for n, name := range names {
		done, is := seen.done[piece{n, wholeNode}]
		switch {
		case !is:
			wrong = append(wrong, fmt.Errorf("%s is %q in the end", name, seen.record.Nodes[n:n+1]))
		case name != string(entityplan.Callback):
			judge(name, done)
		default:
			for at, callback := range callbacks {
				of := done
				if earlier, is := seen.done[piece{n, at}]; is {
					of = earlier
				}
				judge(callback, of)
			}
		}
	}
	said = fmt.Sprintf("%d nodes; of %d deployments and commands each ran, none after the store had that it was done, and %d began once more before", len(names), compared, again)
	return said, errors.Join(wrong...)
}

// callbacks are the commands of CALLBACK, in the order of its letters.
func (seen *planSeen) callbacks(ctx context.Context, s *store.Store) (names []string, err error) {
	inc, err := s.Incarnation(ctx, seen.record.Hash)
	if err != nil {
		return nil, err
	}
	for _, c := range inc.Work(seen.record.Channel).CommandsOf(&entityplan.Node{Kind: entityplan.Callback}) {
		names = append(names, "CALLBACK of "+c.Service)
	}
	return names, nil
}

// nodesOf are the nodes of a plan, in the order of its letters.
func nodesOf(ctx context.Context, w *world, of protocol.PlanRef) (names []string, err error) {
	for {
		var status protocol.PlanStatus
		err := w.converge(ctx, &status, "run", "show", of.Application, of.Channel, "--plan", of.Name, "--output", "json")
		names = nil
		for _, n := range status.Nodes {
			names = append(names, n.Node)
		}
		if err == nil || errors.As(err, new(*serviceerror.NotFound)) {
			return names, err
		}
		if pauseErr := pause(ctx, inBetween); pauseErr != nil {
			return nil, errors.Join(err, pauseErr)
		}
	}
}

// noted is when the nodes of a plan began and ended, by what commands and applies noted themselves.
func noted(w *world, plan string, round int) (begun, ended map[string][]time.Time, err error) {
	begun, ended = map[string][]time.Time{}, map[string][]time.Time{}
	file, err := os.Open(w.path("nodes"))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	by := map[string]map[string][]time.Time{"begin": begun, "end": ended}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		field := strings.Split(lines.Text(), "\t")
		if len(field) != 4 || field[1] != plan {
			continue
		}
		at, err := strconv.ParseInt(field[3], 10, 64)
		if err != nil {
			return nil, nil, err
		}
		by[field[0]][field[2]] = append(by[field[0]][field[2]], time.Unix(0, at))
	}
	log, err := os.Open(filepath.Join(w.site(), record.LogFile))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	applies, err := record.Read(log)
	version := "v1"
	if round > 1 {
		version = fmt.Sprintf("v1-i%d", round)
	}
	for _, a := range applies {
		name := "DEPLOY " + a.Service + "@site"
		switch {
		case a.Version != version:
		case a.Event == record.Start:
			begun[name] = append(begun[name], a.At)
		case a.OK:
			ended[name] = append(ended[name], a.At)
		}
	}
	return begun, ended, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
