package state

import (
	"fmt"
	"slices"
	"time"
)

// This file holds the promises of a service for joint releases (B8): one release with versions of several services.

// Reservation is the promise to open a release once all other services of it have promised their parts. It blocks only its own version.
type Reservation struct {
	ID          string    `json:"id"` // of the release
	Version     string    `json:"version"`
	Incarnation int64     `json:"incarnation"` // that a new version uses, even if another one is published since
	Hash        string    `json:"hash"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`    // when it was proposed
	Until       time.Time `json:"until"` // then it requests the outcome
}

// MaxReservations bounds the promises that wait for an outcome.
const MaxReservations = 20

// CheckReservation returns why a joint release cannot be promised, or nil.
func (s *State) CheckReservation(id string) error {
	switch {
	case s.ReleaseByID(id) != nil:
		return fmt.Errorf("%s already has a release %s", s.scopeName(""), id)
	case len(s.Reservations) >= MaxReservations:
		return fmt.Errorf("%d joint releases wait for a decision, which is the limit", len(s.Reservations))
	}
	return nil
}

// CheckReserved returns an error for a version that a joint release is about to define.
func (s *State) CheckReserved(version string) error {
	for _, r := range s.Reservations {
		if r.Version == version {
			return fmt.Errorf("%s of %s is part of release %s, which is still being decided; try again in a moment", version, s.scopeName(""), r.ID)
		}
	}
	return nil
}

// Reserve makes a promise.
func (s *State) Reserve(r Reservation, now time.Time) {
	s.Reservations = append(s.Reservations, r)
	s.AppendJournal(now, "", fmt.Sprintf("release %s: %s promised, by %s", r.ID, r.Version, r.By))
}

// ReservationByID is the promise for a release, or nil.
func (s *State) ReservationByID(id string) *Reservation {
	if n := slices.IndexFunc(s.Reservations, func(r Reservation) bool { return r.ID == id }); n >= 0 {
		return &s.Reservations[n]
	}
	return nil
}

// EndReservation ends a promise: it was carried out or abandoned.
func (s *State) EndReservation(id, why string, now time.Time) {
	if s.ReservationByID(id) == nil {
		return
	}
	s.Reservations = slices.DeleteFunc(s.Reservations, func(r Reservation) bool { return r.ID == id })
	if why != "" {
		s.AppendJournal(now, "", fmt.Sprintf("release %s: abandoned: %s", id, why))
	}
}

// MarkCarriedOut records that a joint release, with this time of proposal, was carried out.
func (s *State) MarkCarriedOut(proposed time.Time) {
	if proposed.After(s.LastJoint) {
		s.LastJoint = proposed
	}
}

// WasCarriedOut reports whether an unknown joint release was carried out and pruned since. An application carries them out in the order
// of their proposals.
func (s *State) WasCarriedOut(proposed time.Time) bool { return !proposed.After(s.LastJoint) }

// NextReservationDeadline is when the first promise is due; zero: there is none.
func (s *State) NextReservationDeadline() time.Time {
	var first time.Time
	for _, r := range s.Reservations {
		if first.IsZero() || r.Until.Before(first) {
			first = r.Until
		}
	}
	return first
}

// DueReservations are the releases with due promises, oldest first.
func (s *State) DueReservations(now time.Time) []string {
	var due []string
	for _, r := range s.Reservations {
		if !now.Before(r.Until) {
			due = append(due, r.ID)
		}
	}
	return due
}
