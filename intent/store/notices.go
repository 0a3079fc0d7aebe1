package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

const notices = "notices/"

// keptNotices is how many notices of an application are kept. Only the newest counts; older ones help an investigation.
const keptNotices = 20

// PutNotice records a notice to the services of an application under its order (G1). It returns the newest notice, which is another one
// if that was recorded later or under the same order.
func (s *Store) PutNotice(ctx context.Context, application string, n protocol.Notice) (protocol.Notice, error) {
	keys, err := s.noticesOf(ctx, application)
	if err != nil {
		return n, err
	}
	if len(keys) > 0 {
		newest, err := s.notice(ctx, keys[len(keys)-1])
		if err != nil && !IsDamaged(err) || newest.Order.Compare(n.Order) >= 0 {
			return newest, err
		}
	}
	stored, created, err := writeRecord(ctx, s, noticeKey(application, n.Order), n, ofOrder(n.Order))
	stored.Order = n.Order // the order of a damaged notice is known, too
	for i := 0; created && i <= len(keys)-keptNotices; i++ {
		if err := s.blobs.remove(ctx, keys[i]); err != nil {
			return stored, err
		}
	}
	return stored, err
}

// NewestNotice returns the current notice to the services of an application. The error is a *NotFoundError if there is none yet, and a
// *CorruptError if the newest is damaged, because older ones no longer apply.
func (s *Store) NewestNotice(ctx context.Context, application string) (protocol.Notice, error) {
	keys, err := s.noticesOf(ctx, application)
	if err != nil {
		return protocol.Notice{}, err
	}
	if len(keys) == 0 {
		return protocol.Notice{}, &NotFoundError{notices + application}
	}
	return s.notice(ctx, keys[len(keys)-1])
}

// notice reads a record. The order of a damaged one is known from its key.
func (s *Store) notice(ctx context.Context, key string) (protocol.Notice, error) {
	var order entities.NoticeOrder
	if _, err := fmt.Sscanf(key[len(key)-2*orderDigits-1:], "%d-%d", &order.Newest, &order.Count); err != nil {
		return protocol.Notice{}, &CorruptError{key, "its name is not an order"}
	}
	n, err := readRecord(ctx, s, key, ofOrder(order))
	n.Order = order
	return n, err
}

// noticesOf returns the keys of an application's notices, oldest first.
func (s *Store) noticesOf(ctx context.Context, application string) ([]string, error) {
	prefix := notices + application + "/"
	keys, err := s.blobs.list(ctx, prefix)
	keys = slices.DeleteFunc(keys, func(key string) bool { return len(key) != len(prefix)+2*orderDigits+1 })
	slices.Sort(keys)
	return keys, err
}

const orderDigits = 12

func noticeKey(application string, o entities.NoticeOrder) string {
	return fmt.Sprintf("%s%s/%0*d-%0*d", notices, application, orderDigits, o.Newest, orderDigits, o.Count)
}

func ofOrder(o entities.NoticeOrder) func(protocol.Notice) bool {
	return func(n protocol.Notice) bool { return n.Order == o }
}
