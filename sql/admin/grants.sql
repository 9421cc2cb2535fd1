-- Who may do what: nothing for PUBLIC, then what each kind of role needs.

REVOKE ALL ON SCHEMA llmq, llmq_internal FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA llmq FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA llmq FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA llmq, llmq_internal FROM PUBLIC;
REVOKE ALL ON TYPE llmq.placement, llmq.submission, llmq.http_response FROM PUBLIC;
