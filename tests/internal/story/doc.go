// Package story plays stories of gates and of rollbacks against a real Temporal server: archives of a configuration and a
// script of what is done and what must then be seen, which read like documentation.
//
// An archive (txtar) holds converge.yaml, whatever files it names, further configurations, and a file named story. In all of them APP
// stands for the application's name, SITE and HOST for the address of a web server that the story sets, DIR for the directory of the
// configuration, YESTERDAY, TOMORROW and SOON (in four seconds) for times. Lines of the story, of the service web unless they begin with
// another's name and a colon, "application:" or "runtime:" (which is APP-rt):
//
//	publish [FILE] [-> refused: TEXT]     makes converge.yaml, or another file, the newest incarnation
//	VERB {PAYLOAD} [-> TEXT]              an update, its payload in YAML, and what its answer contains; a token is
//	                                      given by its claims: {token: {email: bob@shop.dev, groups: [sre]}}
//	VERB {PAYLOAD} -> refused: TEXT       refused as an update and as a signal, and nothing else changes
//	signal VERB {PAYLOAD}                 the same as a signal
//	wait CHANNEL STATUS [TARGET], ...     until the channels are so
//	stays CHANNEL STATUS [TARGET], ...    they are so now, and still are once every channel was observed twice again
//	phase VERSION CHANNEL PHASE [~ TEXT]  until the release is so far there, for that reason
//	explain ~ TEXT                        until what explain prints contains it
//	history                               until the audit trail, with the store's part, has the indented lines that
//	                                      follow, in this order; others may be between them
//	fake CHANNEL ...                      scripts the runtime: see fakes.go
//	site PATH STATUS [BODY]               what the web server answers from now on
//	announced PATH ~ TEXT                 until it was posted something that contains it
//	write FILE TEXT, read FILE ~ TEXT     writes a file of the configuration's directory; until one contains it
//	lines FILE N                          that file has so many lines
//	incarnation N                         until the service goes by it
//	runs N                                until the workflow is in its Nth run at least
//	worker stop, worker start             where the world has a worker of its own
//	terminate                             ends the workflow as an operator does
//
// Blank lines, and those that begin with #, are for people.
package story
