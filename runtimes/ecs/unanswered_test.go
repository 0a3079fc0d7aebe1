package ecs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// What AWS does not answer, or refuses because of the credentials, says nothing about a release: the apply is no attempt, and a failed reading
// stops the progress deadline.
func TestNoAnswerCondemnsNothing_A23(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, row := range []struct {
		err            error
		unready, quiet bool
	}{
		{refused, true, true},
		{fmt.Errorf("send: %w", refused), true, true},
		{&smithy.GenericAPIError{Code: "ExpiredTokenException"}, true, true},
		{&smithy.GenericAPIError{Code: "AccessDeniedException"}, false, false},
		{&smithy.GenericAPIError{Code: "ServerException"}, false, false},
		{context.DeadlineExceeded, false, true}, // an apply also waits for tasks
		{&smithy.GenericAPIError{Code: "ClusterNotFoundException"}, false, true},
	} {
		require.Equal(t, row.unready, runtimes.IsUnready(explain("apply v2", row.err)), "%v", row.err)
		var reading *entities.ReadingError
		require.ErrorAs(t, readingError("observe", row.err), &reading)
		require.Equal(t, row.quiet, reading.SaysNothing(), "%v", row.err)
	}
}
