//go:build !after

package main

import "go.temporal.io/sdk/interceptor"

// logic decides as Converge does.
type logic struct {
	interceptor.WorkerInterceptorBase
}
