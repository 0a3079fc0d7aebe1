package config

import "github.com/converge-engine/converge/intent/internal/strict"

// Fault is what is wrong and what would have been right, without a place in a file.
type Fault = strict.Fault

// Problem is a Fault at a file, line, column and path.
type Problem = strict.Problem

// Problems is everything wrong with a configuration, sorted by place. It is an error; its text has
// one line for each problem.
type Problems = strict.Problems
