package store

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// joints holds the proposals and decisions of joint releases, by application and id.
const joints = "releases/"

// CreateJoint records the proposal of a joint release. The first call for an id wins. It returns the stored record.
func (s *Store) CreateJoint(ctx context.Context, j protocol.Joint) (protocol.Joint, error) {
	stored, _, err := createRecord(ctx, s, jointKey(j.Application, j.ID)+"proposal", j, ofJoint(j.ID))
	return stored, err
}

// Joint returns the proposal of a joint release.
func (s *Store) Joint(ctx context.Context, application, id string) (protocol.Joint, error) {
	return readRecord(ctx, s, jointKey(application, id)+"proposal", ofJoint(id))
}

func ofJoint(id string) func(protocol.Joint) bool {
	return func(j protocol.Joint) bool { return j.ID == id }
}

// CreateJointDecision records the decision on a joint release for all services. The first call wins. It returns the stored decision.
func (s *Store) CreateJointDecision(ctx context.Context, application string, d protocol.JointDecision) (protocol.JointDecision, error) {
	stored, _, err := createRecord(ctx, s, jointKey(application, d.ID)+"decision", d, ofDecision(d.ID))
	return stored, err
}

// JointDecision returns the decision on a joint release; nil: none yet.
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
