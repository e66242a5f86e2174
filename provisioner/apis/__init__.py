"""What do objects say, and what does that mean? Structs, names, conditions, hashes, versions, and the definitions made of them.

Pure; knows no controller. `verdicts.py` puts together what is said of an object (`openapi.py`: schema and CEL rules; `validation.py`: errors;
`advice.py`: warnings) for `dovetail lint` and the webhook, and one table of cases is asked of both.
"""
