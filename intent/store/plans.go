package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

// This file stores the progress of plans, their grants to services, and the running plans.

const (
	plans        = "plans/"
	plansRunning = "plans-running/"
)

// PutPlan stores the progress of a plan.
func (s *Store) PutPlan(ctx context.Context, record protocol.PlanRecord) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write the progress of %s: %w", record.ID(), err)
	}
	return s.blobs.write(ctx, planKey(record.PlanRef, "progress"), data)
}

// Plan returns the progress of a plan. A damaged record counts as not found: the plan starts again.
func (s *Store) Plan(ctx context.Context, of protocol.PlanRef) (protocol.PlanRecord, error) {
	key := planKey(of, "progress")
	data, err := s.blobs.read(ctx, key)
	var record protocol.PlanRecord
	if err == nil && (json.Unmarshal(data, &record) != nil || record.PlanRef != of) {
		err = &CorruptError{key, "it is not a record of that plan"}
	}
	return record, err
}

// PlanGrant is the permission of a plan for a service to enter; with a manual release, for the release of that id.
type PlanGrant struct {
	Service string `json:"service"` // its first name
	Release string `json:"release,omitempty"`
}

// GrantPlan stores a grant permanently, and reports whether it is new.
func (s *Store) GrantPlan(ctx context.Context, of protocol.PlanRef, g PlanGrant) (granted bool, err error) {
	key := grantKey(of, g)
	_, granted, err = createRecord(ctx, s, key, g, func(stored PlanGrant) bool { return stored == g })
	if IsDamaged(err) {
		return true, s.rewriteRecord(ctx, key, g)
	}
	return granted, err
}

// PlanGranted reports whether a plan lets a service enter.
func (s *Store) PlanGranted(ctx context.Context, of protocol.PlanRef, g PlanGrant) (bool, error) {
	_, err := readRecord(ctx, s, grantKey(of, g), func(stored PlanGrant) bool { return stored == g })
	if IsNotFound(err) || IsDamaged(err) { // it is granted again
		return false, nil
	}
	return err == nil, err
}

// RunPlan records that a plan runs. EndPlan removes the record.
func (s *Store) RunPlan(ctx context.Context, of protocol.PlanRef) error {
	data, err := json.Marshal(of)
	if err != nil {
		return err
	}
	_, err = s.blobs.create(ctx, runningKey(of), data)
	return err
}

// EndPlan records that a plan no longer runs.
func (s *Store) EndPlan(ctx context.Context, of protocol.PlanRef) error {
	return s.blobs.remove(ctx, runningKey(of))
}

// RunningPlans lists the running plans of an application, or of all applications if it is empty.
func (s *Store) RunningPlans(ctx context.Context, application string) (all []protocol.PlanRef, err error) {
	prefix := plansRunning
	if application != "" {
		prefix += application + "/"
	}
	keys, err := s.blobs.list(ctx, prefix)
	for _, key := range keys {
		if strings.HasPrefix(path.Base(key), ".") { // a crashed writer left it
			continue
		}
		data, err := s.blobs.read(ctx, key)
		if IsNotFound(err) {
			continue // it has ended in the meantime
		}
		if err != nil {
			return nil, err
		}
		var of protocol.PlanRef
		if json.Unmarshal(data, &of) == nil && runningKey(of) == key {
			all = append(all, of)
		}
	}
	return all, err
}

// PlanMark names a number that is stored for the plans of a channel.
type PlanMark string

// The marks: the newest incarnation whose plan has started, and the newest whose plan was completed.
const (
	PlanStarted   PlanMark = "newest"
	PlanCompleted PlanMark = "whole"
)

// PlanDeployed is the mark of the newest incarnation with which a plan deployed a service, by its first name.
func PlanDeployed(service string) PlanMark { return PlanMark("deployed/" + service) }

// PlanDeployFailed is the mark of the newest incarnation with which that failed.
func PlanDeployFailed(service string) PlanMark { return PlanMark("undeployed/" + service) }

// PlanMarked returns the marked incarnation; 0: none.
func (s *Store) PlanMarked(ctx context.Context, application, channel string, mark PlanMark) (int64, error) {
	marks, err := s.planMarks(ctx, application, channel, mark)
	if err != nil || len(marks) == 0 {
		return 0, err
	}
	return marks[len(marks)-1], nil
}

// MarkPlan marks an incarnation, unless a newer one is marked. Each mark has its own key, and the highest counts, so concurrent calls
// lose no mark.
func (s *Store) MarkPlan(ctx context.Context, application, channel string, mark PlanMark, incarnation int64) error {
	marks, err := s.planMarks(ctx, application, channel, mark)
	if err != nil || len(marks) > 0 && marks[len(marks)-1] >= incarnation {
		return err
	}
	if _, err := s.blobs.create(ctx, markKey(application, channel, mark, incarnation), []byte("{}")); err != nil {
		return err
	}
	for _, lower := range marks {
		if err := s.blobs.remove(ctx, markKey(application, channel, mark, lower)); err != nil {
			return err
		}
	}
	return nil
}

// planMarks lists the marked incarnations, the highest last.
func (s *Store) planMarks(ctx context.Context, application, channel string, mark PlanMark) (marks []int64, err error) {
	prefix := marksOf(application, channel, mark)
	keys, err := s.blobs.list(ctx, prefix)
	for _, key := range keys {
		if n, err := strconv.ParseInt(strings.TrimPrefix(key, prefix), 10, 64); err == nil { // otherwise a crashed writer left it
			marks = append(marks, n)
		}
	}
	return marks, err
}

func marksOf(application, channel string, mark PlanMark) string {
	return plans + application + "/" + channel + "/marked/" + string(mark) + "/"
}

func markKey(application, channel string, mark PlanMark, incarnation int64) string {
	return fmt.Sprintf("%s%019d", marksOf(application, channel, mark), incarnation)
}

func planKey(of protocol.PlanRef, what string) string {
	return plans + of.Application + "/" + of.Channel + "/of/" + keyPart(of.Name) + "/" + what
}

func grantKey(of protocol.PlanRef, g PlanGrant) string {
	name := g.Service
	if g.Release != "" {
		name += "@" + keyPart(g.Release)
	}
	return planKey(of, "entry/"+name)
}

func runningKey(of protocol.PlanRef) string {
	return plansRunning + of.Application + "/" + of.Channel + "/" + keyPart(of.Name)
}

// keyPart turns a user-given name into a part of a key. The result is readable, and different names have different results.
func keyPart(name string) string {
	readable := url.QueryEscape(name)
	return readable[:min(len(readable), 100)] + "-" + canonical.Hash([]byte(name))[:8]
}
