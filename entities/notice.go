package entities

import (
	"cmp"
	"time"
)

// NoticeOrder is the position of a notice (a publication, a pin, an unpin) among all notices of an application.
type NoticeOrder struct {
	// Newest is the highest incarnation at that time. It continues from its last value even if the application was lost.
	Newest int64 `json:"newest"`
	// Count grows by at least one with each notice.
	Count int64 `json:"count"`
}

// Compare is negative when o comes before other, and positive when it comes after it.
func (o NoticeOrder) Compare(other NoticeOrder) int {
	return cmp.Or(cmp.Compare(o.Newest, other.Newest), cmp.Compare(o.Count, other.Count))
}

// Next returns the order of the next notice. If no count is known, it starts from the current time, which is higher than any lost count.
func (o NoticeOrder) Next(newest int64, now time.Time) NoticeOrder {
	if o.Count == 0 {
		o.Count = now.Unix()
	}
	return NoticeOrder{Newest: max(o.Newest, newest), Count: o.Count + 1}
}
