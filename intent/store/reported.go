package store

import (
	"context"

	"github.com/converge-engine/converge/entities"
)

// This file stores the outputs of extensions and of plan steps.

const reports = "reported/"

// Report identifies the outputs of an extension.
type Report struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Channel     string `json:"channel"`
	Extension   string `json:"extension"`
	// Of is the full version for which it ran. For a step of a plan it is the plan.
	Of string `json:"of"`
}

// ReportRecord is a version of the outputs. The newest version is current; older ones are kept.
type ReportRecord struct {
	Report
	Version int64  `json:"version"` // counts from 1
	Release string `json:"release"` // for which it ran
	entities.Reported
}

// PutReport stores the outputs of an extension, unless they are equal to the current ones.
func (s *Store) PutReport(ctx context.Context, of Report, release string, reported entities.Reported) error {
	before, err := s.Report(ctx, of)
	switch {
	case err == nil && entities.DigestOf(before.Reported) == entities.DigestOf(reported):
		return nil
	case err != nil && !IsNotFound(err) && !IsDamaged(err):
		return err
	}
	r := ReportRecord{Report: of, Version: before.Version + 1, Release: release, Reported: reported}
	_, _, err = createRecord(ctx, s, versioned(of.key(), r.Version), r, func(o ReportRecord) bool { return o.Report == of && o.Version == r.Version })
	return err
}

// Report returns the newest outputs of an extension. A damaged record is an error, and counts as a version.
func (s *Store) Report(ctx context.Context, of Report) (r ReportRecord, err error) {
	version, err := s.newest(ctx, of.key())
	if err != nil {
		return r, err
	}
	r, err = readRecord(ctx, s, versioned(of.key(), version), func(r ReportRecord) bool { return r.Report == of && r.Version == version })
	r.Version = version
	return r, err
}

func (r Report) key() string {
	return reports + r.Application + "/" + r.Channel + "/" + r.Service + "/" + r.Extension + "/" + keyPart(r.Of) + "/"
}
