package store

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// joints has joint releases, by application and id: what was proposed, and what was decided.
const joints = "releases/"

// CreateJoint records a joint release as it was proposed, unless its id is taken: the first call decides. It returns the record
// that stands.
func (s *Store) CreateJoint(ctx context.Context, j protocol.Joint) (protocol.Joint, error) {
	stands, _, err := createRecord(ctx, s, jointKey(j.Application, j.ID)+"proposal", j, ofJoint(j.ID))
	return stands, err
}

// Joint returns a joint release as it was proposed.
func (s *Store) Joint(ctx context.Context, application, id string) (protocol.Joint, error) {
	return readRecord(ctx, s, jointKey(application, id)+"proposal", ofJoint(id))
}

func ofJoint(id string) func(protocol.Joint) bool {
	return func(j protocol.Joint) bool { return j.ID == id }
}

// CreateJointDecision records what became of a joint release: the first call decides, for all services. It returns the decision
// that stands.
func (s *Store) CreateJointDecision(ctx context.Context, application string, d protocol.JointDecision) (protocol.JointDecision, error) {
	stands, _, err := createRecord(ctx, s, jointKey(application, d.ID)+"decision", d, ofDecision(d.ID))
	return stands, err
}

// JointDecision returns what was decided of a joint release; nil: nothing yet.
func (s *Store) JointDecision(ctx context.Context, application, id string) (*protocol.JointDecision, error) {
	d, err := readRecord(ctx, s, jointKey(application, id)+"decision", ofDecision(id))
	if IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &d, nil
}

func ofDecision(id string) func(protocol.JointDecision) bool {
	return func(d protocol.JointDecision) bool { return d.ID == id }
}

func jointKey(application, id string) string { return joints + application + "/" + id + "/" }
