// Package decide holds the convergence decision: a function of a service's state, the time and nothing else,
// that says what each instance should be at, whether it may move now, and what it is doing. It reads the state
// and writes none of it; what it decides is a value, which entities/loop commits.
//
// What a release must pass on its way into a channel is one table (gates.go), with a row and a file for each
// kind of gate; what an instance can be made of is another (entity.go).
package decide
